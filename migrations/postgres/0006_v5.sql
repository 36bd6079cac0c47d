-- PROTOCOL_V5: the short ids of agents, contexts and tasks, and the message log.

-- +goose Up
-- The number of an agent never changes.
CREATE TABLE v5_agent_numbers (
    number   BIGINT           NOT NULL PRIMARY KEY,
    agent_id TEXT COLLATE "C" NOT NULL UNIQUE REFERENCES agents (id)
);

-- A context is a session, or a task without one. A session with more tasks than a context has
-- numbers has several contexts.
CREATE TABLE v5_contexts (
    number     BIGINT           NOT NULL PRIMARY KEY,
    session_id TEXT COLLATE "C" NOT NULL, -- '' for a task without a session
    tasks      BIGINT           NOT NULL, -- numbers assigned so far
    created_at BIGINT           NOT NULL
);
CREATE INDEX v5_contexts_session ON v5_contexts (session_id, number) WHERE session_id <> '';
CREATE INDEX v5_contexts_created ON v5_contexts (created_at);

-- The number of the next context: the first one that no concurrent transaction has taken, so that
-- transactions do not wait for each other. Unlike that of a sequence, the number of a refused request
-- is used by the next one. 119105 is the namespace of the locks, "V5".
CREATE VIEW v5_next_context AS
SELECT number FROM (
    SELECT generate_series(last.number + 1, last.number + 1000) AS number
    FROM (SELECT COALESCE(MAX(number), 0) AS number FROM v5_contexts) AS last
) AS candidates
WHERE pg_try_advisory_xact_lock(119105, (number % 2147483647)::INTEGER)
LIMIT 1;

-- The tasks of a context are numbered from 1 to 999.
CREATE TABLE v5_context_tasks (
    context BIGINT           NOT NULL REFERENCES v5_contexts (number),
    number  BIGINT           NOT NULL,
    task_id TEXT COLLATE "C" NOT NULL UNIQUE, -- may be numbered before it is written
    PRIMARY KEY (context, number)
);

-- The message log (§10) and the target of references. Messages are written in batches, a little
-- after they were exchanged, and are deleted with ended tasks.
CREATE TABLE v5_messages (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7: the order in which they were exchanged
    at        BIGINT           NOT NULL,
    peer      TEXT COLLATE "C" NOT NULL, -- the other end: 'W1', or 'User:' and the owner of the token
    context   BIGINT           NOT NULL, -- the number of CTX
    task      BIGINT           NOT NULL, -- that of TID, 0 for none
    depth     BIGINT           NOT NULL,
    number    BIGINT           NOT NULL, -- that of MSG
    sender    TEXT             NOT NULL,
    receiver  TEXT             NOT NULL,
    type      TEXT             NOT NULL,
    state     TEXT             NOT NULL, -- '' for none, as the code
    code      TEXT             NOT NULL,
    data      TEXT             NOT NULL,
    parent    BIGINT           NOT NULL, -- the number in pid=, 0 for none
    parent_id TEXT COLLATE "C" NOT NULL -- the message that caused this one, '' for none that is known
);
CREATE INDEX v5_messages_task ON v5_messages (context, task, id);
CREATE INDEX v5_messages_number ON v5_messages (context, peer, number, id);

-- +goose Down
DROP TABLE v5_messages;
DROP TABLE v5_context_tasks;
DROP VIEW v5_next_context;
DROP TABLE v5_contexts;
DROP TABLE v5_agent_numbers;
