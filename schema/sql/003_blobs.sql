-- Schema 3: blobs, which graphs refer to them, and digests of tensors within them.

CREATE TABLE blobs (
    key     INTEGER PRIMARY KEY AUTOINCREMENT,
    digest  TEXT NOT NULL UNIQUE,  -- sha256:... of the bytes
    size    INTEGER NOT NULL,
    created INTEGER NOT NULL,
    used    INTEGER NOT NULL,      -- when it was last put, or a graph that referred to it was deleted
    bytes   BLOB                   -- NULL: they are in the file blobs/ab/cd/<hex>
) STRICT;

-- What the tensors of each graph refer to. The blob need not be here.
CREATE TABLE graph_blobs (
    graph  INTEGER NOT NULL REFERENCES graphs (key) ON DELETE CASCADE,
    digest TEXT NOT NULL,
    PRIMARY KEY (graph, digest)
) STRICT, WITHOUT ROWID;
CREATE INDEX graph_blobs_digest ON graph_blobs (digest);

-- Digests of tensors whose bytes are in a blob, so that they are computed once.
CREATE TABLE tensor_digests (
    blob   INTEGER NOT NULL REFERENCES blobs (key) ON DELETE CASCADE,
    offset INTEGER NOT NULL,
    dtype  TEXT NOT NULL,
    shape  TEXT NOT NULL,
    digest TEXT NOT NULL,
    PRIMARY KEY (blob, offset, dtype, shape)
) STRICT, WITHOUT ROWID;

-- Graphs stored by earlier versions: the program reads their documents for graph_blobs when it opens the store.
CREATE TABLE unread_graphs (
    graph INTEGER PRIMARY KEY REFERENCES graphs (key) ON DELETE CASCADE
) STRICT;
INSERT INTO unread_graphs SELECT key FROM graphs;
