-- The workflow of a task of an agent step is found by the task.

-- +goose Up
CREATE INDEX workflow_steps_task ON workflow_steps (task_id) WHERE task_id <> '';

-- +goose Down
DROP INDEX workflow_steps_task;
