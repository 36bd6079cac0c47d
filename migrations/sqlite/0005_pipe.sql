-- What the pipe protocol calls agents, sessions and tasks. Its names are short and used
-- again for others, so each is kept with what it stands for.

-- +goose Up
-- W1, W2, …: an agent has the same number for good.
CREATE TABLE pipe_agents (
    number   INTEGER NOT NULL PRIMARY KEY,
    agent_id TEXT    NOT NULL UNIQUE REFERENCES agents (id)
) STRICT;

-- S1, S2, …: a session, or a task that is in none. A session that has had more tasks
-- than there are numbers has several.
CREATE TABLE pipe_contexts (
    number     INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT    NOT NULL, -- '' for a task that is in none
    tasks      INTEGER NOT NULL, -- how many numbers were given out
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX pipe_contexts_session ON pipe_contexts (session_id, number) WHERE session_id <> '';
CREATE INDEX pipe_contexts_created ON pipe_contexts (created_at);

-- T1 to T999 in each of them.
CREATE TABLE pipe_tasks (
    context INTEGER NOT NULL REFERENCES pipe_contexts (number),
    number  INTEGER NOT NULL,
    task_id TEXT    NOT NULL UNIQUE REFERENCES tasks (id) ON DELETE CASCADE,
    PRIMARY KEY (context, number)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE pipe_tasks;
DROP TABLE pipe_contexts;
DROP TABLE pipe_agents;
