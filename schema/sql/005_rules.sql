-- Schema 5: rules, which are passes given as data. Runs refer to them by name and version, so no version is ever changed or
-- deleted.

CREATE TABLE rules (
    key      INTEGER PRIMARY KEY AUTOINCREMENT,
    name     TEXT NOT NULL,
    version  INTEGER NOT NULL,
    digest   TEXT NOT NULL,    -- sha256:... of the document
    document TEXT NOT NULL,    -- canonical JSON
    created  INTEGER NOT NULL,
    UNIQUE (name, version),
    UNIQUE (name, digest)
) STRICT;
CREATE INDEX rules_name ON rules (name);
