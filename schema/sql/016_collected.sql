-- Schema 16: a graph keeps the blobs that it names.

-- Blobs that were here and were removed: each for a week at least, or until it is put again. Nothing is stored that names one. So who
-- saw a blob before it went is refused in the transaction that stores what names it.
CREATE TABLE collected (
    digest TEXT NOT NULL PRIMARY KEY,
    at     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX collected_at ON collected (at);

-- 1: the blob has been here since the graph names it, and stays. 0: it has not come yet. Of older graphs the audit knows what was here.
ALTER TABLE graph_blobs ADD COLUMN is_held INTEGER NOT NULL DEFAULT 0;
UPDATE graph_blobs SET is_held = 1 WHERE digest IN (SELECT digest FROM blobs)
    OR digest IN (SELECT object FROM audit WHERE action = 'blob-put');
