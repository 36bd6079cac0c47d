-- PROTOCOL_V5: the short ids of agents, contexts and tasks, and the message log.

-- +goose Up
-- The number of an agent never changes.
CREATE TABLE v5_agent_numbers (
    number   INTEGER NOT NULL PRIMARY KEY,
    agent_id TEXT    NOT NULL UNIQUE REFERENCES agents (id)
) STRICT;

-- A context is a session, or a task without one. A session with more tasks than a context has
-- numbers has several contexts.
CREATE TABLE v5_contexts (
    number     INTEGER NOT NULL PRIMARY KEY,
    session_id TEXT    NOT NULL, -- '' for a task without a session
    tasks      INTEGER NOT NULL, -- numbers assigned so far
    created_at INTEGER NOT NULL
) STRICT;
CREATE INDEX v5_contexts_session ON v5_contexts (session_id, number) WHERE session_id <> '';
CREATE INDEX v5_contexts_created ON v5_contexts (created_at);

-- The number of the next context; there is one writer.
CREATE VIEW v5_next_context AS SELECT COALESCE(MAX(number), 0) + 1 AS number FROM v5_contexts;

-- The tasks of a context are numbered from 1 to 999.
CREATE TABLE v5_context_tasks (
    context INTEGER NOT NULL REFERENCES v5_contexts (number),
    number  INTEGER NOT NULL,
    task_id TEXT    NOT NULL UNIQUE, -- may be numbered before it is written
    PRIMARY KEY (context, number)
) STRICT, WITHOUT ROWID;

-- The message log (§10) and the target of references. Messages are written in batches, a little
-- after they were exchanged, and are deleted with ended tasks.
CREATE TABLE v5_messages (
    id        TEXT    NOT NULL PRIMARY KEY, -- UUIDv7: the order in which they were exchanged
    at        INTEGER NOT NULL,
    peer      TEXT    NOT NULL, -- the other end: 'W1', or 'User:' and the owner of the token
    context   INTEGER NOT NULL, -- the number of CTX
    task      INTEGER NOT NULL, -- that of TID, 0 for none
    depth     INTEGER NOT NULL,
    number    INTEGER NOT NULL, -- that of MSG
    sender    TEXT    NOT NULL,
    receiver  TEXT    NOT NULL,
    type      TEXT    NOT NULL,
    state     TEXT    NOT NULL, -- '' for none, as the code
    code      TEXT    NOT NULL,
    data      TEXT    NOT NULL,
    parent    INTEGER NOT NULL, -- the number in pid=, 0 for none
    parent_id TEXT    NOT NULL -- the message that caused this one, '' for none that is known
) STRICT, WITHOUT ROWID;
CREATE INDEX v5_messages_task ON v5_messages (context, task, id);
CREATE INDEX v5_messages_number ON v5_messages (context, peer, number, id);

-- +goose Down
DROP TABLE v5_messages;
DROP TABLE v5_context_tasks;
DROP VIEW v5_next_context;
DROP TABLE v5_contexts;
DROP TABLE v5_agent_numbers;
