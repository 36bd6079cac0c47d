-- Lines to agents: which one a worker is on, what was heard on it, and where agents
-- are that are called rather than call.

-- +goose Up
ALTER TABLE workers ADD COLUMN line TEXT NOT NULL DEFAULT ''; -- names the connection, '' for none

-- What a dialect needs to say of a failure, beside its code and text.
ALTER TABLE tasks ADD COLUMN detail TEXT NOT NULL DEFAULT ''; -- JSON

-- An output that comes in pieces belongs to one step, and has a length where its agent
-- told one.
ALTER TABLE attempts ADD COLUMN chunk_step INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN chunk_total INTEGER NOT NULL DEFAULT 0;

-- A piece whose agent says another length than it has stands for as many bytes until
-- the whole is there.
ALTER TABLE task_outputs ADD COLUMN span INTEGER; -- NULL where it is what data has

-- Messages of agents that had their effect, so that one that comes twice has it once.
CREATE TABLE heard (
    agent_id   TEXT NOT NULL,
    message_id TEXT NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (agent_id, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX heard_at ON heard (at);

-- A request is claimed before its task is written.
CREATE TABLE task_requests_new (
    owner      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    digest     BLOB    NOT NULL, -- SHA-256 of what was asked for
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (owner, request_id)
) STRICT, WITHOUT ROWID;
INSERT INTO task_requests_new SELECT owner, request_id, digest, task_id, created_at FROM task_requests;
DROP TABLE task_requests;
ALTER TABLE task_requests_new RENAME TO task_requests;
CREATE INDEX task_requests_task ON task_requests (task_id);
CREATE INDEX task_requests_created ON task_requests (created_at);

-- Agents to which their messages are pushed.
CREATE TABLE push_targets (
    agent_id   TEXT NOT NULL PRIMARY KEY REFERENCES agents (id),
    url        TEXT NOT NULL,
    dialect    TEXT NOT NULL,
    places     INTEGER NOT NULL,
    secret     TEXT NOT NULL, -- what comet shows the agent
    owner      TEXT NOT NULL, -- the token that registered it
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- What a token asked for is listed by itself.
CREATE INDEX tasks_owner ON tasks (owner, created_at, id);
CREATE INDEX sessions_owner ON sessions (owner, created_at, id);

-- +goose Down
DROP INDEX sessions_owner;
DROP INDEX tasks_owner;
DROP TABLE push_targets;
DROP INDEX task_requests_created;
CREATE TABLE task_requests_old (
    owner      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    digest     BLOB    NOT NULL, -- SHA-256 of what was asked for
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (owner, request_id)
) STRICT, WITHOUT ROWID;
INSERT INTO task_requests_old SELECT owner, request_id, digest, task_id, created_at FROM task_requests;
DROP TABLE task_requests;
ALTER TABLE task_requests_old RENAME TO task_requests;
CREATE INDEX task_requests_task ON task_requests (task_id);
DROP TABLE heard;
ALTER TABLE task_outputs DROP COLUMN span;
ALTER TABLE attempts DROP COLUMN chunk_total;
ALTER TABLE attempts DROP COLUMN chunk_step;
ALTER TABLE tasks DROP COLUMN detail;
ALTER TABLE workers DROP COLUMN line;
