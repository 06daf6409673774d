-- Schema 13: what the replicas of a service on one database share. Where there is one process, most of it stays empty.

-- Small texts of the store as a whole: its id, and where its blobs are.
CREATE TABLE notes (
    name TEXT NOT NULL PRIMARY KEY,
    text TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- The replicas at work. Each counts its beats up; one whose count stands still is taken out, and writes nothing more under that id.
CREATE TABLE replicas (
    id    TEXT NOT NULL PRIMARY KEY,
    name  TEXT NOT NULL,     -- of its machine, for people
    beats INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Requests with an Idempotency-Key that are being answered.
CREATE TABLE requests (
    scope           TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    principal       TEXT NOT NULL,
    request_digest  TEXT NOT NULL,
    replica         TEXT NOT NULL REFERENCES replicas (id) ON DELETE CASCADE,
    PRIMARY KEY (scope, idempotency_key, principal)
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_replica ON requests (replica);

-- Blobs whose objects a replica is putting into the bucket, or removing from it.
CREATE TABLE claims (
    digest  TEXT NOT NULL PRIMARY KEY,
    replica TEXT NOT NULL REFERENCES replicas (id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX claims_replica ON claims (replica);

-- Which replica started the job last.
ALTER TABLE jobs ADD COLUMN replica TEXT;
