-- Tasks, their attempts and sessions, the workers that execute them and the messages to agents
-- (Chiffon, PROTOCOL_V5 §4 and §6).

-- +goose Up
-- A conversation, or the subtasks of one piece of work.
CREATE TABLE sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL, -- the token that created it
    agent_id   TEXT    NOT NULL, -- the agent of that token, '' for none
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 1), -- open, closed
    open_tasks INTEGER NOT NULL CHECK (open_tasks >= 0), -- that have not ended
    tasks      INTEGER NOT NULL, -- all of them
    facts      TEXT    NOT NULL, -- JSON object of its creator
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_created ON sessions (created_at, id);
CREATE INDEX sessions_owner ON sessions (owner, created_at, id);
CREATE INDEX sessions_idle ON sessions (updated_at) WHERE state = 0;

-- The changing columns of a task. Its fixed input is in task_inputs and its long outputs are in
-- task_outputs, so that a change of state writes little.
CREATE TABLE tasks (
    id             TEXT    NOT NULL PRIMARY KEY, -- chosen by the requester, or UUIDv7
    session_id     TEXT    NOT NULL, -- '' for none
    parent_id      TEXT    REFERENCES tasks (id), -- the task it was handed off from
    depth          INTEGER NOT NULL, -- number of hand-offs above it
    class          TEXT    NOT NULL, -- selects its policy
    owner          TEXT    NOT NULL, -- the token of the requester
    owner_agent_id TEXT    NOT NULL, -- the agent of the requester, '' for none
    queue_key      TEXT    NOT NULL, -- its requirements: tasks with equal requirements share a queue
    on_end         TEXT    NOT NULL, -- kind of the job that follows its end, with the job's key after '/'; '' for none
    priority       INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    state          INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4), -- new, running, done, failed, cancelled
    waiting_for    INTEGER NOT NULL CHECK (waiting_for BETWEEN 0 AND 3), -- its worker, any worker, a retry, a reply
    attempt        INTEGER NOT NULL, -- the number of the newest, 0 before the first
    agent_id       TEXT    NOT NULL, -- of the newest attempt, '' before the first
    budget         INTEGER, -- tokens for all attempts together; NULL is unlimited
    tokens         INTEGER NOT NULL, -- used so far
    deadline       INTEGER NOT NULL, -- of the newest attempt or the wait
    progress       INTEGER NOT NULL CHECK (progress BETWEEN 0 AND 100),
    step           INTEGER NOT NULL,
    step_name      TEXT    NOT NULL,
    questions      INTEGER NOT NULL, -- clarifications asked for so far
    output_bytes   INTEGER NOT NULL, -- of the newest attempt
    log_bytes      INTEGER NOT NULL, -- of the newest attempt
    exit_code      INTEGER,
    error_code     TEXT    NOT NULL, -- '' unless it failed
    error          TEXT    NOT NULL,
    detail         TEXT    NOT NULL DEFAULT '', -- JSON: what a protocol reports of a failure beside code and text
    decision       TEXT    NOT NULL, -- JSON: the candidates and the selected worker
    version        INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    started_at     INTEGER,
    updated_at     INTEGER NOT NULL,
    ended_at       INTEGER
) STRICT;
CREATE INDEX tasks_queued ON tasks (queue_key, priority DESC, created_at, id) WHERE waiting_for = 1;
CREATE INDEX tasks_created ON tasks (created_at, id);
CREATE INDEX tasks_owner ON tasks (owner, created_at, id);
CREATE INDEX tasks_agent ON tasks (agent_id, created_at, id);
CREATE INDEX tasks_session ON tasks (session_id, created_at, id) WHERE session_id <> '';
CREATE INDEX tasks_parent ON tasks (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_open ON tasks (created_at, id) WHERE state < 2;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE state >= 2;

CREATE TABLE task_inputs (
    task_id            TEXT    NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    capabilities       TEXT    NOT NULL, -- JSON array of required capabilities
    agent_type         TEXT    NOT NULL, -- '' for any
    sphere_id          INTEGER NOT NULL, -- 0 for any
    requested_agent_id TEXT    NOT NULL, -- '' for any
    parameters         TEXT    NOT NULL, -- JSON object
    policy             TEXT    NOT NULL, -- JSON: what the requester set differently from the class
    meta               TEXT    NOT NULL, -- JSON: what the requester's protocol must return
    trace              TEXT    NOT NULL -- W3C traceparent, '' for none
) STRICT;

-- A repeated request finds its task. A request is claimed before its task is written.
CREATE TABLE task_requests (
    owner      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    digest     BLOB    NOT NULL, -- SHA-256 of the request
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (owner, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_requests_task ON task_requests (task_id);
CREATE INDEX task_requests_created ON task_requests (created_at);

CREATE TABLE attempts (
    task_id        TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    attempt        INTEGER NOT NULL, -- from 1
    agent_id       TEXT    NOT NULL,
    state          INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5), -- assigned, running, succeeded, failed, timed out, cancelled
    reservation_id TEXT    NOT NULL, -- '' without a budget
    tokens         INTEGER NOT NULL, -- used
    error_code     TEXT    NOT NULL,
    error          TEXT    NOT NULL,
    assigned_at    INTEGER NOT NULL,
    accepted_at    INTEGER,
    ended_at       INTEGER,
    chunk_step     INTEGER NOT NULL DEFAULT 0, -- the step of an output in chunks
    chunk_total    INTEGER NOT NULL DEFAULT 0, -- the announced length of that output, 0 for none
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;

-- The result and the log of an attempt, in chunks that do not overlap.
CREATE TABLE task_outputs (
    task_id TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    attempt INTEGER NOT NULL,
    stream  INTEGER NOT NULL CHECK (stream IN (0, 1)), -- result, log
    start   INTEGER NOT NULL, -- byte offset
    data    BLOB    NOT NULL,
    span    INTEGER, -- the announced length where it differs from that of data, NULL otherwise
    PRIMARY KEY (task_id, attempt, stream, start)
) STRICT, WITHOUT ROWID;

-- Agents that execute tasks, and their state. An assignment takes a slot of in_flight, the end of
-- its attempt returns it.
CREATE TABLE workers (
    agent_id         TEXT    NOT NULL PRIMARY KEY REFERENCES agents (id),
    state            INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2), -- offline, online, busy
    protocol         TEXT    NOT NULL,
    protocol_version TEXT    NOT NULL DEFAULT '', -- '' for the newest
    transport        TEXT    NOT NULL, -- websocket, sse, poll, push, nats, tcp
    connection_id    TEXT    NOT NULL DEFAULT '', -- '' for none
    concurrency      INTEGER NOT NULL CHECK (concurrency > 0), -- attempts it executes at a time
    in_flight        INTEGER NOT NULL CHECK (in_flight >= 0),
    load             INTEGER NOT NULL, -- percent, as the worker reports it
    max_depth        INTEGER NOT NULL DEFAULT 0, -- of hand-offs it accepts (PROTOCOL_V5 §2.4), 0 where unreported
    last_seen_at     INTEGER NOT NULL,
    last_assigned_at INTEGER NOT NULL,
    failures         INTEGER NOT NULL, -- timeouts and failed deliveries since the last success
    breaker_until    INTEGER NOT NULL, -- it gets no new work before; 0 when the breaker is closed
    probing          INTEGER NOT NULL CHECK (probing IN (0, 1)), -- the breaker waits for a heartbeat
    version          INTEGER NOT NULL,
    updated_at       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX workers_updated ON workers (updated_at);
CREATE INDEX workers_seen ON workers (last_seen_at) WHERE state > 0;

-- Unacknowledged messages to agents; an acknowledgement deletes the row.
CREATE TABLE inbox (
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
CREATE INDEX inbox_task ON inbox (task_id);
CREATE INDEX inbox_notices ON inbox (created_at) WHERE task_id IS NULL;

-- Messages of agents that had their effect, so that a repeated message has none.
CREATE TABLE processed_messages (
    agent_id   TEXT    NOT NULL,
    message_id TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (agent_id, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX processed_messages_at ON processed_messages (at);

-- The URLs to which agents' messages are pushed.
CREATE TABLE push_targets (
    agent_id    TEXT    NOT NULL PRIMARY KEY REFERENCES agents (id),
    url         TEXT    NOT NULL,
    protocol    TEXT    NOT NULL,
    concurrency INTEGER NOT NULL,
    secret      TEXT    NOT NULL, -- authenticates comet to the agent
    owner       TEXT    NOT NULL, -- the token that registered it
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE push_targets;
DROP TABLE processed_messages;
DROP TABLE inbox;
DROP TABLE workers;
DROP TABLE task_outputs;
DROP TABLE attempts;
DROP TABLE task_requests;
DROP TABLE task_inputs;
DROP TABLE tasks;
DROP TABLE sessions;
