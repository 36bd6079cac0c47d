-- On PostgreSQL, the relay numbers events after their commit; only SQLite changes.

-- +goose Up
SELECT 1;

-- +goose Down
SELECT 1;
