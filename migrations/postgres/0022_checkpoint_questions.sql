-- Questions to MCP clients about checkpoints (multi round-trip requests).

-- +goose Up
ALTER TABLE checkpoints ADD COLUMN ask TEXT COLLATE "C" NOT NULL DEFAULT ''; -- the key of the question, '' for none

-- +goose Down
ALTER TABLE checkpoints DROP COLUMN ask;
