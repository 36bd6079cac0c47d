-- The version of an account orders the events usage.changed of several replicas.

-- +goose Up
ALTER TABLE usage_accounts ADD COLUMN version INTEGER NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE usage_accounts DROP COLUMN version;
