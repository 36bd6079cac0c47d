-- Lines to agents: which one a worker is on, what was heard on it, and where agents
-- are that are called rather than call.

-- +goose Up
ALTER TABLE workers ADD COLUMN line TEXT COLLATE "C" NOT NULL DEFAULT ''; -- names the connection, '' for none

-- What a dialect needs to say of a failure, beside its code and text.
ALTER TABLE tasks ADD COLUMN detail TEXT NOT NULL DEFAULT ''; -- JSON

-- An output that comes in pieces belongs to one step, and has a length where its agent
-- told one.
ALTER TABLE attempts ADD COLUMN chunk_step BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN chunk_total BIGINT NOT NULL DEFAULT 0;

-- A piece whose agent says another length than it has stands for as many bytes until
-- the whole is there.
ALTER TABLE task_outputs ADD COLUMN span BIGINT; -- NULL where it is what data has

-- Messages of agents that had their effect, so that one that comes twice has it once.
CREATE TABLE heard (
    agent_id   TEXT COLLATE "C" NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    at         BIGINT NOT NULL,
    PRIMARY KEY (agent_id, message_id)
);
CREATE INDEX heard_at ON heard (at);

-- A request is claimed before its task is written.
ALTER TABLE task_requests ALTER CONSTRAINT task_requests_task_id_fkey DEFERRABLE INITIALLY DEFERRED;
CREATE INDEX task_requests_created ON task_requests (created_at);

-- Agents to which their messages are pushed.
CREATE TABLE push_targets (
    agent_id   TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES agents (id),
    url        TEXT NOT NULL,
    dialect    TEXT NOT NULL,
    places     BIGINT NOT NULL,
    secret     TEXT NOT NULL, -- what comet shows the agent
    owner      TEXT NOT NULL, -- the token that registered it
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

-- What a token asked for is listed by itself.
CREATE INDEX tasks_owner ON tasks (owner, created_at, id);
CREATE INDEX sessions_owner ON sessions (owner, created_at, id);

-- +goose Down
DROP INDEX sessions_owner;
DROP INDEX tasks_owner;
DROP TABLE push_targets;
DROP INDEX task_requests_created;
ALTER TABLE task_requests ALTER CONSTRAINT task_requests_task_id_fkey NOT DEFERRABLE;
DROP TABLE heard;
ALTER TABLE task_outputs DROP COLUMN span;
ALTER TABLE attempts DROP COLUMN chunk_total;
ALTER TABLE attempts DROP COLUMN chunk_step;
ALTER TABLE tasks DROP COLUMN detail;
ALTER TABLE workers DROP COLUMN line;
