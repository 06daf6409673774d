-- Schema 8: jobs, which are requests that are answered later.

-- The request as its handler gets it, and then the answer that it gave. The request's body goes when the job is finished.
CREATE TABLE jobs (
    key           INTEGER PRIMARY KEY AUTOINCREMENT,
    id            TEXT NOT NULL UNIQUE,  -- job_...
    state         TEXT NOT NULL CHECK (state IN ('queued', 'running', 'succeeded', 'failed', 'cancelled')),
    principal     TEXT NOT NULL,         -- who asked for it: the token's name, or as in the audit
    request       TEXT NOT NULL,         -- id of the request that made it
    method        TEXT NOT NULL,
    target        TEXT NOT NULL,         -- path and query as sent
    content_type  TEXT NOT NULL,
    body_size     INTEGER NOT NULL,
    body          BLOB,                  -- zstd; NULL = empty, or finished
    created       INTEGER NOT NULL,
    started       INTEGER,               -- the last time
    finished      INTEGER,
    attempts      INTEGER NOT NULL,      -- times that it was started
    interruptions INTEGER NOT NULL,      -- times that the process ended in the middle of it
    is_unwanted   INTEGER NOT NULL,      -- 1 = it is to be cancelled
    progress      TEXT,                  -- JSON: what was told last
    events        TEXT,                  -- when finished: those of its last start, as they are sent
    status        INTEGER,               -- when finished: of the answer; NULL = cancelled
    result_type   TEXT,
    location      TEXT,
    result_size   INTEGER,
    result        BLOB                   -- zstd
) STRICT;
CREATE INDEX jobs_state ON jobs (state);
CREATE INDEX jobs_finished ON jobs (finished);
