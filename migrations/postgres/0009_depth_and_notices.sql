-- How deep a worker takes what others hand off to it (PROTOCOL_V5 §2.4), and what agents
-- are told that is about no task (§3.3, type B).

-- +goose Up
ALTER TABLE workers ADD COLUMN max_depth SMALLINT NOT NULL DEFAULT 0; -- 0 where it did not say

ALTER TABLE inbox ALTER COLUMN task_id DROP NOT NULL; -- NULL for a notice
CREATE INDEX inbox_notices ON inbox (created_at) WHERE task_id IS NULL;

-- +goose Down
DROP INDEX inbox_notices;
DELETE FROM inbox WHERE task_id IS NULL;
ALTER TABLE inbox ALTER COLUMN task_id SET NOT NULL;
ALTER TABLE workers DROP COLUMN max_depth;
