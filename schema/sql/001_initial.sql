-- Schema 1: graphs, runs, signatures, answers to repeated requests.
--
-- ASCII only. A migration runs inside the transaction that also raises user_version. Rows get integer keys, never used twice
-- (AUTOINCREMENT): pages of lists continue after a key. Every index ends in that key, so each filter is also in list order.

CREATE TABLE graphs (
    key       INTEGER PRIMARY KEY AUTOINCREMENT,
    id        TEXT NOT NULL UNIQUE,  -- sha256:... of the canonical document
    structure TEXT NOT NULL,
    name      TEXT NOT NULL,
    nodes     INTEGER NOT NULL,
    size      INTEGER NOT NULL,      -- of the canonical document, in bytes
    created   INTEGER NOT NULL,      -- times are milliseconds since 1970, UTC
    document  BLOB NOT NULL          -- the canonical document as one zstd frame
) STRICT;
CREATE INDEX graphs_structure ON graphs (structure);
CREATE INDEX graphs_name ON graphs (name);

-- Every signature of a pass that was ever stored; few, however many graphs.
CREATE TABLE signatures (
    id   INTEGER PRIMARY KEY,
    text TEXT NOT NULL UNIQUE
) STRICT;

-- The marks of the nodes of each graph. node = position in the document.
CREATE TABLE node_signatures (
    graph     INTEGER NOT NULL REFERENCES graphs (key) ON DELETE CASCADE,
    signature INTEGER NOT NULL REFERENCES signatures (id),
    node      INTEGER NOT NULL,
    PRIMARY KEY (graph, signature, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
    key         INTEGER PRIMARY KEY AUTOINCREMENT,
    id          TEXT NOT NULL UNIQUE,                    -- run_ and a ULID
    kind        TEXT NOT NULL,
    source      INTEGER NOT NULL REFERENCES graphs (key),
    result      INTEGER NOT NULL REFERENCES graphs (key),
    of_run      INTEGER REFERENCES runs (key),           -- what a reverse or rollback undoes
    composition TEXT NOT NULL,                           -- signature of all passes together
    exact       INTEGER NOT NULL CHECK (exact IN (0, 1)),
    reversible  INTEGER NOT NULL CHECK (reversible IN (0, 1)),
    preserves_computation INTEGER NOT NULL CHECK (preserves_computation IN (0, 1)),
    lint        TEXT NOT NULL,
    created     INTEGER NOT NULL,
    note        TEXT,
    request     TEXT NOT NULL,                           -- JSON: what a replay needs
    report_size INTEGER NOT NULL,                        -- bytes of the report before compression
    report      BLOB NOT NULL                            -- JSON array of what each pass did, as one zstd frame
) STRICT;
CREATE INDEX runs_kind ON runs (kind);
CREATE INDEX runs_source ON runs (source);
CREATE INDEX runs_result ON runs (result);
CREATE INDEX runs_of_run ON runs (of_run) WHERE of_run IS NOT NULL;
CREATE INDEX runs_composition ON runs (composition);

CREATE TABLE run_passes (
    run       INTEGER NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    position  INTEGER NOT NULL,
    name      TEXT NOT NULL,
    version   INTEGER NOT NULL,
    signature INTEGER NOT NULL REFERENCES signatures (id),
    applied   INTEGER NOT NULL,
    refused   INTEGER NOT NULL,
    PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_passes_name ON run_passes (name, run);
CREATE INDEX run_passes_signature ON run_passes (signature, run);

CREATE TABLE run_labels (
    run   INTEGER NOT NULL REFERENCES runs (key) ON DELETE CASCADE,
    key   TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_labels_key ON run_labels (key, run);
CREATE INDEX run_labels_value ON run_labels (key, value, run);

-- What requests with an Idempotency-Key were answered.
CREATE TABLE answers (
    key             INTEGER PRIMARY KEY,
    scope           TEXT NOT NULL,  -- method and path
    idempotency_key TEXT NOT NULL,
    request_digest  TEXT NOT NULL,
    status          INTEGER NOT NULL,
    location        TEXT,
    body_size       INTEGER NOT NULL,
    body            BLOB,           -- one zstd frame
    created         INTEGER NOT NULL,
    UNIQUE (scope, idempotency_key)
) STRICT;
CREATE INDEX answers_created ON answers (created);
