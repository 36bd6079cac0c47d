-- ListTasks of A2A reads the tasks of a token in each state, the last changed one first.

-- +goose Up
CREATE INDEX tasks_a2a ON tasks (owner, state, updated_at, id) WHERE class = 'a2a';
CREATE INDEX workflows_a2a ON workflows (token_id, state, updated_at, id) WHERE source = 'a2a';
CREATE INDEX a2a_tasks_outside ON a2a_tasks (owner, state, updated_at, id) WHERE state > 0;

-- +goose Down
DROP INDEX a2a_tasks_outside;
DROP INDEX workflows_a2a;
DROP INDEX tasks_a2a;
