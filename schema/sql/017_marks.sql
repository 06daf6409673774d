-- Schema 17: SQL finds what a pass made, in every graph.

-- The node's name. NULL = the graph was stored before schema 17; its document has the name.
ALTER TABLE node_signatures ADD COLUMN name TEXT;
CREATE INDEX node_signatures_signature ON node_signatures (signature, graph);
