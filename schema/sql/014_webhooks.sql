-- Schema 14: webhooks, and the outbox of what they are told; and how versions are named that foldback makes itself.

-- The secrets are here as they are: each message is signed with them.
CREATE TABLE webhooks (
    key              INTEGER PRIMARY KEY AUTOINCREMENT,
    id               TEXT NOT NULL UNIQUE,  -- hook_...
    url              TEXT NOT NULL,
    events           TEXT NOT NULL,         -- names of events, separated by spaces; * = all
    models           TEXT NOT NULL,         -- patterns of names, separated by spaces
    note             TEXT,
    is_enabled       INTEGER NOT NULL,      -- 0: nothing is put into the outbox for it, and what is there waits
    secret           TEXT NOT NULL,         -- whsec_...
    old_secret       TEXT,                  -- which signs as well
    old_secret_until INTEGER,
    created          INTEGER NOT NULL,
    changed          INTEGER NOT NULL
) STRICT;

-- One row a message and webhook, written in the transaction of the act that it tells of.
CREATE TABLE webhook_deliveries (
    key       INTEGER PRIMARY KEY AUTOINCREMENT,
    id        TEXT NOT NULL UNIQUE,  -- msg_...: the same in every attempt
    webhook   INTEGER NOT NULL REFERENCES webhooks (key),
    type      TEXT NOT NULL,         -- alias.moved ...
    topic     TEXT,                  -- messages of one topic go in the order of their keys; NULL = in any order
    body      TEXT NOT NULL,         -- as it is sent
    created   INTEGER NOT NULL,      -- when the act was
    queued    INTEGER NOT NULL,      -- since when it is tried: when it was created, or sent again by request
    due       INTEGER NOT NULL,      -- while it is pending: not tried before
    state     TEXT NOT NULL CHECK (state IN ('pending', 'delivered', 'parked')),
    attempts  INTEGER NOT NULL,
    attempted INTEGER,               -- the last time
    status    INTEGER,               -- that was answered then; NULL = none was
    failure   TEXT                   -- what went wrong then; NULL = nothing
) STRICT;
CREATE INDEX webhook_deliveries_webhook ON webhook_deliveries (webhook);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (webhook, due) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_topic ON webhook_deliveries (webhook, topic) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_parked ON webhook_deliveries (webhook) WHERE state = 'parked';
CREATE INDEX webhook_deliveries_ended ON webhook_deliveries (state, attempted) WHERE state <> 'pending';

-- 1: a token of scope read that may also manage webhooks (the scope hooks).
ALTER TABLE tokens ADD COLUMN manages_hooks INTEGER NOT NULL DEFAULT 0;

-- Of the versions that a rollback of passes makes.
ALTER TABLE models ADD COLUMN naming TEXT NOT NULL DEFAULT 'words';     -- words, integer
ALTER TABLE models ADD COLUMN last_number INTEGER NOT NULL DEFAULT 0;  -- that it gave to one: none is given twice
