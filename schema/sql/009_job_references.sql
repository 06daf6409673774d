-- Schema 9: what jobs that are not finished name, so that it stays until they are.

-- Ids of graphs and runs and digests of blobs that were here when the job was stored. They go when it has ended.
CREATE TABLE job_references (
    job INTEGER NOT NULL REFERENCES jobs (key) ON DELETE CASCADE,
    id  TEXT NOT NULL,
    PRIMARY KEY (job, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_references_id ON job_references (id);

-- Jobs stored by earlier versions: the program reads their requests for job_references when it opens the store.
CREATE TABLE unread_jobs (
    job INTEGER PRIMARY KEY REFERENCES jobs (key) ON DELETE CASCADE
) STRICT;
INSERT INTO unread_jobs SELECT key FROM jobs WHERE finished IS NULL;
