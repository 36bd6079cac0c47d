-- Workflows whose plan is extended while they run (AgentCards, “agentcards:replan”).

-- +goose Up
ALTER TABLE workflows ADD COLUMN revision BIGINT NOT NULL DEFAULT 0; -- how many times steps were added
ALTER TABLE workflow_steps ADD COLUMN first_layer BIGINT NOT NULL DEFAULT 0; -- the lowest layer of an added step, 0 for any

-- +goose Down
ALTER TABLE workflow_steps DROP COLUMN first_layer;
ALTER TABLE workflows DROP COLUMN revision;
