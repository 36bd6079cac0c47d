-- Short names, for protocols in which a line has no room for others: of agents, of sessions
-- and of the tasks in them. Each is kept with what it stands for.

-- +goose Up
-- An agent has the same number for good.
CREATE TABLE agent_numbers (
    number   BIGINT NOT NULL PRIMARY KEY,
    agent_id TEXT COLLATE "C" NOT NULL UNIQUE REFERENCES agents (id)
);

-- A session, or a task that is in none, is a context. A session that has had more tasks
-- than there are numbers has several.
CREATE TABLE contexts (
    number     BIGINT NOT NULL PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL, -- '' for a task that is in none
    tasks      BIGINT NOT NULL, -- how many numbers were given out
    created_at BIGINT NOT NULL
);
CREATE INDEX contexts_session ON contexts (session_id, number) WHERE session_id <> '';
CREATE INDEX contexts_created ON contexts (created_at);

-- The tasks of each of them are numbered from 1 to 999.
CREATE TABLE context_tasks (
    context BIGINT NOT NULL REFERENCES contexts (number),
    number  BIGINT NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL UNIQUE, -- may be named before it is written
    PRIMARY KEY (context, number)
);

-- +goose Down
DROP TABLE context_tasks;
DROP TABLE contexts;
DROP TABLE agent_numbers;
