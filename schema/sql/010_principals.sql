-- Schema 10: answers to repeated requests belong to who asked.

CREATE TABLE answers_of_principals (
    key             INTEGER PRIMARY KEY,
    principal       TEXT NOT NULL,  -- who asked; '' = a job's own requests
    scope           TEXT NOT NULL,  -- method and path
    idempotency_key TEXT NOT NULL,
    request_digest  TEXT NOT NULL,
    status          INTEGER NOT NULL,
    location        TEXT,
    body_size       INTEGER NOT NULL,
    body            BLOB,           -- one zstd frame
    created         INTEGER NOT NULL,
    UNIQUE (scope, idempotency_key, principal)
) STRICT;

-- Who asked, where that is known: the audit knows who made a run, a job knows its own. Without tokens everybody is one. An answer
-- of which nobody knows whose it was is forgotten. The answers of a job are needed until it has finished.
INSERT INTO answers_of_principals
SELECT key, principal, scope, idempotency_key, request_digest, status, location, body_size, body, created FROM (
    SELECT a.*, CASE WHEN a.scope = 'job' THEN ''
        ELSE coalesce(
            (SELECT who FROM audit WHERE object = substr(a.location, 10) AND a.location LIKE '/v1/runs/%' ORDER BY number LIMIT 1),
            (SELECT principal FROM jobs WHERE id = substr(a.location, 10) AND a.location LIKE '/v1/jobs/%'),
            CASE WHEN NOT EXISTS (SELECT 1 FROM tokens) THEN 'anonymous' END)
        END AS principal
    FROM answers a
    WHERE a.scope <> 'job' OR EXISTS (SELECT 1 FROM jobs WHERE id = substr(a.idempotency_key, 1, 30) AND finished IS NULL)
) known WHERE principal IS NOT NULL;

DROP TABLE answers;
ALTER TABLE answers_of_principals RENAME TO answers;
CREATE INDEX answers_created ON answers (created);
