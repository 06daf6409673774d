-- What a stored pass is: 1 = a rule (transformation), 2 = a layout. All of before are rules.
ALTER TABLE rules ADD COLUMN kind INTEGER NOT NULL DEFAULT 1;
