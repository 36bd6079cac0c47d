-- Lines to agents: which one a worker is on, what was heard on it, and where agents
-- are that are called rather than call.

-- +goose Up
ALTER TABLE workers ADD COLUMN line TEXT COLLATE "C" NOT NULL DEFAULT ''; -- names the connection, '' for none

-- An output that comes in pieces belongs to one step, and has a length where its agent
-- told one.
ALTER TABLE attempts ADD COLUMN chunk_step BIGINT NOT NULL DEFAULT 0;
ALTER TABLE attempts ADD COLUMN chunk_total BIGINT NOT NULL DEFAULT 0;

-- Messages of agents that had their effect, so that one that comes twice has it once.
CREATE TABLE heard (
    agent_id   TEXT COLLATE "C" NOT NULL,
    message_id TEXT COLLATE "C" NOT NULL,
    at         BIGINT NOT NULL,
    PRIMARY KEY (agent_id, message_id)
);
CREATE INDEX heard_at ON heard (at);

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

-- +goose Down
DROP TABLE push_targets;
DROP INDEX task_requests_created;
DROP TABLE heard;
ALTER TABLE attempts DROP COLUMN chunk_total;
ALTER TABLE attempts DROP COLUMN chunk_step;
ALTER TABLE workers DROP COLUMN line;
