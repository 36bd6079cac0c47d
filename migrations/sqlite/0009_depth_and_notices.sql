-- How deep a worker takes what others hand off to it (PROTOCOL_V5 §2.4), and what agents
-- are told that is about no task (§3.3, type B).

-- +goose Up
ALTER TABLE workers ADD COLUMN max_depth INTEGER NOT NULL DEFAULT 0; -- 0 where it did not say

CREATE TABLE inbox_new (
    agent_id   TEXT    NOT NULL,
    id         TEXT    NOT NULL, -- UUIDv7, the message's id
    kind       TEXT    NOT NULL, -- assign, cancel, answer, ended, notice
    priority   INTEGER NOT NULL,
    task_id    TEXT    REFERENCES tasks (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED, -- NULL for a notice
    attempt    INTEGER NOT NULL,
    data       TEXT    NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    PRIMARY KEY (agent_id, id)
) STRICT, WITHOUT ROWID;
INSERT INTO inbox_new SELECT agent_id, id, kind, priority, task_id, attempt, data, created_at FROM inbox;
DROP TABLE inbox;
ALTER TABLE inbox_new RENAME TO inbox;
CREATE INDEX inbox_task ON inbox (task_id);
CREATE INDEX inbox_notices ON inbox (created_at) WHERE task_id IS NULL;

-- +goose Down
CREATE TABLE inbox_old (
    agent_id   TEXT    NOT NULL,
    id         TEXT    NOT NULL,
    kind       TEXT    NOT NULL, -- assign, cancel, answer
    priority   INTEGER NOT NULL,
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    attempt    INTEGER NOT NULL,
    data       TEXT    NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    PRIMARY KEY (agent_id, id)
) STRICT, WITHOUT ROWID;
INSERT INTO inbox_old SELECT agent_id, id, kind, priority, task_id, attempt, data, created_at FROM inbox WHERE task_id IS NOT NULL;
DROP TABLE inbox;
ALTER TABLE inbox_old RENAME TO inbox;
CREATE INDEX inbox_task ON inbox (task_id);
ALTER TABLE workers DROP COLUMN max_depth;
