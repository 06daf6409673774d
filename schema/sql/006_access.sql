-- Schema 6: tokens, and who did what.

-- The token itself is nowhere: what is kept is its SHA-256. A token that was revoked stays, so that its name is never another's.
CREATE TABLE tokens (
    key       INTEGER PRIMARY KEY AUTOINCREMENT,
    name      TEXT NOT NULL UNIQUE,
    digest    TEXT NOT NULL UNIQUE,  -- sha256:...
    scope     TEXT NOT NULL CHECK (scope IN ('read', 'write', 'admin')),
    created   INTEGER NOT NULL,
    expires   INTEGER,               -- NULL = never
    revoked   INTEGER,               -- when, NULL = it was not
    last_used INTEGER                -- to within a minute; NULL = never
) STRICT;

-- One row an act, written in the act's own transaction. Names and ids are copies: what they stand for may go.
CREATE TABLE audit (
    number  INTEGER PRIMARY KEY AUTOINCREMENT,
    at      INTEGER NOT NULL,
    who     TEXT NOT NULL,  -- the token's name; anonymous; local = this machine's command line; service = on its own
    request TEXT,           -- its id, as in the access log; NULL = none
    action  TEXT NOT NULL,
    object  TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
CREATE INDEX audit_who ON audit (who);
CREATE INDEX audit_action ON audit (action);
CREATE INDEX audit_object ON audit (object);

CREATE TRIGGER audit_is_not_changed BEFORE UPDATE ON audit BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
