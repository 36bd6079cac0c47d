-- Push notifications of A2A are webhooks that receive the events of one task.

-- +goose Up
ALTER TABLE webhooks ADD COLUMN task_id TEXT COLLATE "C" REFERENCES a2a_tasks (id) ON DELETE CASCADE; -- NULL is not bound to a task
ALTER TABLE webhooks ADD COLUMN config_id TEXT COLLATE "C" NOT NULL DEFAULT ''; -- the name of the configuration in its task
ALTER TABLE webhooks ADD COLUMN format TEXT NOT NULL DEFAULT ''; -- of the bodies: '' is that of webhooks
CREATE UNIQUE INDEX webhooks_task ON webhooks (task_id, config_id) WHERE task_id IS NOT NULL;
CREATE INDEX webhooks_pushing ON webhooks (task_id) WHERE task_id IS NOT NULL AND enabled = TRUE;

-- +goose Down
DELETE FROM webhooks WHERE task_id IS NOT NULL;
DROP INDEX webhooks_pushing;
DROP INDEX webhooks_task;
ALTER TABLE webhooks DROP COLUMN format;
ALTER TABLE webhooks DROP COLUMN config_id;
ALTER TABLE webhooks DROP COLUMN task_id;
