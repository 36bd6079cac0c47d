-- Workflows whose plan is extended while they run (AgentCards, “agentcards:replan”), and stored workflows.

-- +goose Up
ALTER TABLE workflows ADD COLUMN revision INTEGER NOT NULL DEFAULT 0; -- how many times steps were added
ALTER TABLE workflow_steps ADD COLUMN first_layer INTEGER NOT NULL DEFAULT 0; -- the lowest layer of an added step, 0 for any
ALTER TABLE workflows ADD COLUMN definition TEXT NOT NULL DEFAULT ''; -- the stored workflow that it executes, '' for none
ALTER TABLE workflows ADD COLUMN definition_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE workflows ADD COLUMN input TEXT NOT NULL DEFAULT ''; -- JSON, '' without a definition

CREATE TABLE workflow_definitions (
    name         TEXT NOT NULL,
    version      INTEGER NOT NULL, -- from 1; a version never changes
    description  TEXT NOT NULL,
    plan         TEXT NOT NULL, -- JSON: the steps and the settings
    input_schema TEXT NOT NULL, -- a JSON Schema, '' for none
    created_by   TEXT NOT NULL, -- the name of the token
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (name, version)
);

-- +goose Down
DROP TABLE workflow_definitions;
ALTER TABLE workflows DROP COLUMN input;
ALTER TABLE workflows DROP COLUMN definition_version;
ALTER TABLE workflows DROP COLUMN definition;
ALTER TABLE workflow_steps DROP COLUMN first_layer;
ALTER TABLE workflows DROP COLUMN revision;
