-- Schema 15: a webhook is delivered to as long as the token that made it, or changed it last, is valid.

-- The token's name, or anonymous or local. NULL = it was made before, and the audit no longer says by whom.
ALTER TABLE webhooks ADD COLUMN who TEXT;
UPDATE webhooks SET who = (
    SELECT who FROM audit WHERE object = webhooks.id AND action IN ('webhook-create', 'webhook-change', 'webhook-rotate') AND who <> 'service'
    ORDER BY number DESC LIMIT 1
);
