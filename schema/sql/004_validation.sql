-- Schema 4: how a run was validated.

-- JSON: {"mode", "passes", "complete"}; NULL = it was not. What each pass came to is in the report.
ALTER TABLE runs ADD COLUMN validation TEXT;
