-- Schema 7: pins, and what else says that a run or graph is needed.

-- Runs that retention keeps.
CREATE TABLE pins (
    key     INTEGER PRIMARY KEY AUTOINCREMENT,
    run     INTEGER NOT NULL UNIQUE REFERENCES runs (key),
    note    TEXT,
    created INTEGER NOT NULL
) STRICT;

CREATE INDEX alias_entries_graph ON alias_entries (graph) WHERE graph IS NOT NULL;
