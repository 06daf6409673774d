-- Schema 19: a run keeps what was asked for, and which preset each of its passes was a part of.

-- JSON: the list of passes and presets as the client named them. NULL = not known: the run was stored before, or records a change.
ALTER TABLE runs ADD COLUMN requested TEXT;
-- NULL = of none, or the run was stored before.
ALTER TABLE run_passes ADD COLUMN preset TEXT;
CREATE INDEX run_passes_preset ON run_passes (preset, run) WHERE preset IS NOT NULL;
