-- Schema 2: models, their versions, and aliases with their history.

CREATE TABLE models (
    key     INTEGER PRIMARY KEY AUTOINCREMENT,
    name    TEXT NOT NULL UNIQUE,
    created INTEGER NOT NULL
) STRICT;

-- A version is a name for a graph, and never changes.
CREATE TABLE versions (
    key     INTEGER PRIMARY KEY AUTOINCREMENT,
    model   INTEGER NOT NULL REFERENCES models (key),
    name    TEXT NOT NULL,
    graph   INTEGER NOT NULL REFERENCES graphs (key),
    run     INTEGER REFERENCES runs (key),  -- whose result it was given as
    note    TEXT,
    created INTEGER NOT NULL,
    UNIQUE (model, name)
) STRICT;
CREATE INDEX versions_model ON versions (model);
CREATE INDEX versions_graph ON versions (graph);
CREATE INDEX versions_run ON versions (run) WHERE run IS NOT NULL;

-- A row stays when its alias is deleted: its history goes on when the alias is made again.
CREATE TABLE aliases (
    key     INTEGER PRIMARY KEY AUTOINCREMENT,
    model   INTEGER NOT NULL REFERENCES models (key),
    name    TEXT NOT NULL,
    version INTEGER REFERENCES versions (key),  -- that of its last entry; NULL = deleted
    UNIQUE (model, name)
) STRICT;
CREATE INDEX aliases_model ON aliases (model) WHERE version IS NOT NULL;
CREATE INDEX aliases_version ON aliases (version) WHERE version IS NOT NULL;

-- What happened to the aliases. The entries of one alias are a chain: no two follow the same one. What they say of a version is
-- a copy, because a version may be deleted when no alias is left that had it; so its key here is no reference.
CREATE TABLE alias_entries (
    number       INTEGER PRIMARY KEY AUTOINCREMENT,
    alias        INTEGER NOT NULL REFERENCES aliases (key),
    previous     INTEGER UNIQUE REFERENCES alias_entries (number),  -- the alias' entry before; NULL for its first
    parent       INTEGER REFERENCES alias_entries (number),         -- to which a rollback returns; NULL = to none
    at           INTEGER NOT NULL,
    action       TEXT NOT NULL CHECK (action IN ('create', 'deploy', 'rollback', 'delete')),
    who          TEXT,
    why          TEXT,
    version      INTEGER,  -- that the alias has since; NULL = deleted, and then so are the next three
    version_name TEXT,
    graph        TEXT,     -- its id
    run          TEXT      -- its id; NULL also when the version came from no run
) STRICT;
CREATE INDEX alias_entries_alias ON alias_entries (alias);
CREATE INDEX alias_entries_version ON alias_entries (version, alias);

CREATE TRIGGER alias_entries_are_not_changed BEFORE UPDATE ON alias_entries BEGIN
    SELECT RAISE(ABORT, 'the history of aliases is append-only');
END;
CREATE TRIGGER alias_entries_are_not_deleted BEFORE DELETE ON alias_entries BEGIN
    SELECT RAISE(ABORT, 'the history of aliases is append-only');
END;
