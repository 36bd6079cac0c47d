-- Tasks that wait for a reply are listed without reading the other open ones.

-- +goose Up
CREATE INDEX tasks_replies ON tasks (created_at, id) WHERE waiting_for = 3;

-- +goose Down
DROP INDEX tasks_replies;
