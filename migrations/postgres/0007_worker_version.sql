-- Which version of its dialect a worker speaks, where that is not the newest: PROTOCOL_V5
-- §14.3 lets one say in its join that it knows V4 only.

-- +goose Up
ALTER TABLE workers ADD COLUMN dialect_version TEXT NOT NULL DEFAULT ''; -- '' for the newest

-- +goose Down
ALTER TABLE workers DROP COLUMN dialect_version;
