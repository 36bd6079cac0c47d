-- Webhooks of tokens that are bound to agents are confined to the subtrees of these agents.

-- +goose Up
ALTER TABLE webhooks ADD COLUMN confined_to TEXT NOT NULL DEFAULT '[]'; -- JSON array of agents
UPDATE webhooks SET confined_to = (WITH RECURSIVE chain (above, aid) AS (
        SELECT t.parent_id, t.agent_id FROM token_objects o JOIN tokens t ON t.id = o.token_id WHERE o.kind = 'webhooks' AND o.id = webhooks.id
        UNION ALL SELECT t.parent_id, t.agent_id FROM tokens t JOIN chain ON t.id = chain.above)
    SELECT coalesce(json_agg(DISTINCT aid), '[]')::TEXT FROM chain WHERE aid IS NOT NULL);

-- +goose Down
ALTER TABLE webhooks DROP COLUMN confined_to;
