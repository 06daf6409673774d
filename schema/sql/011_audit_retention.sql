-- Schema 11: entries of the audit may be removed for their age, and for nothing else.

-- Has a row only within the transaction that removes entries: those from before `at`, in milliseconds since 1970.
CREATE TABLE audit_trim (
    key INTEGER PRIMARY KEY CHECK (key = 1),
    at  INTEGER NOT NULL
) STRICT;

DROP TRIGGER audit_is_not_deleted;
CREATE TRIGGER audit_is_not_deleted BEFORE DELETE ON audit
WHEN NOT EXISTS (SELECT 1 FROM audit_trim WHERE OLD.at < audit_trim.at) BEGIN
    SELECT RAISE(ABORT, 'the audit is append-only');
END;
