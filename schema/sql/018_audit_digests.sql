-- Schema 18: an entry of the audit has a digest of itself and of the digest before it, so that a changed or removed entry is noticed.

-- sha256:... NULL = written before.
ALTER TABLE audit ADD COLUMN digest TEXT;
