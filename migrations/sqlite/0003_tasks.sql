-- Work: what is asked for, who does it, and how it goes (Chiffon, PROTOCOL_V5 §4).
-- Times are microseconds since 1970 UTC.

-- +goose Up
CREATE INDEX events_key ON events (key, seq);

-- What belongs together: a conversation, or the parts of one piece of work
-- (PROTOCOL_V5 §6).
CREATE TABLE sessions (
    id         TEXT    NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL, -- the token that made it
    agent_id   TEXT    NOT NULL, -- the agent of that token, '' for none
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 1), -- open, closed
    open_tasks INTEGER NOT NULL CHECK (open_tasks >= 0), -- that have not ended
    tasks      INTEGER NOT NULL, -- all of them
    facts      TEXT    NOT NULL, -- JSON object: what its maker set
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    closed_at  INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_created ON sessions (created_at, id);
CREATE INDEX sessions_idle ON sessions (updated_at) WHERE state = 0;

-- One piece of work. What never changes is in task_inputs and what is long in
-- task_outputs, so that a change of state writes little.
CREATE TABLE tasks (
    id         TEXT    NOT NULL PRIMARY KEY, -- of the asker, or UUIDv7
    session_id TEXT    NOT NULL, -- '' for none
    parent_id  TEXT    REFERENCES tasks (id), -- the task it was handed off from
    depth      INTEGER NOT NULL, -- hand-offs above it
    class      TEXT    NOT NULL, -- whose policy it follows
    owner      TEXT    NOT NULL, -- the token that asked
    asker      TEXT    NOT NULL, -- its agent, '' for none
    route      TEXT    NOT NULL, -- what it needs of an agent: tasks of one route wait in one line
    priority   INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 3),
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4), -- new, running, done, failed, cancelled
    waits      INTEGER NOT NULL CHECK (waits BETWEEN 0 AND 3), -- for its agent, for any agent, for a retry, for an answer
    attempt    INTEGER NOT NULL, -- the number of the newest, 0 before the first
    agent_id   TEXT    NOT NULL, -- of the newest attempt, '' before the first
    budget     INTEGER, -- tokens that all attempts together may use; NULL is unlimited
    tokens     INTEGER NOT NULL, -- used so far
    deadline   INTEGER NOT NULL, -- when the newest attempt, or the wait, is given up
    progress   INTEGER NOT NULL CHECK (progress BETWEEN 0 AND 100),
    step       INTEGER NOT NULL,
    step_name  TEXT    NOT NULL,
    questions  INTEGER NOT NULL, -- clarifications asked for so far
    output     INTEGER NOT NULL, -- bytes, of the newest attempt
    logged     INTEGER NOT NULL, -- bytes, likewise
    exit_code  INTEGER,
    error_code TEXT    NOT NULL, -- '' unless it failed
    error      TEXT    NOT NULL,
    decision   TEXT    NOT NULL, -- JSON: who could take it, and who did
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    updated_at INTEGER NOT NULL,
    ended_at   INTEGER
) STRICT;
CREATE INDEX tasks_line ON tasks (route, priority DESC, created_at, id) WHERE waits = 1;
CREATE INDEX tasks_created ON tasks (created_at, id);
CREATE INDEX tasks_agent ON tasks (agent_id, created_at, id);
CREATE INDEX tasks_session ON tasks (session_id, created_at, id) WHERE session_id <> '';
CREATE INDEX tasks_parent ON tasks (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX tasks_open ON tasks (created_at, id) WHERE state < 2;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE state >= 2;

CREATE TABLE task_inputs (
    task_id      TEXT NOT NULL PRIMARY KEY REFERENCES tasks (id) ON DELETE CASCADE,
    capabilities TEXT NOT NULL, -- JSON array, what an agent must be able to do
    agent_type   TEXT NOT NULL, -- '' for any
    sphere_id    INTEGER NOT NULL, -- 0 for any
    wanted       TEXT NOT NULL, -- the agent that is to do it, '' for any
    parameters   TEXT NOT NULL, -- JSON object
    policy       TEXT NOT NULL, -- JSON: what the asker set differently from its class
    meta         TEXT NOT NULL, -- JSON: what the asker's dialect must get back
    trace        TEXT NOT NULL  -- W3C traceparent, '' for none
) STRICT;

-- A request that is repeated finds its task.
CREATE TABLE task_requests (
    owner      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    digest     BLOB    NOT NULL, -- SHA-256 of what was asked for
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (owner, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_requests_task ON task_requests (task_id);

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
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;

-- What an attempt has put out, in pieces that do not overlap: its result, and what it
-- told on the way.
CREATE TABLE task_outputs (
    task_id  TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    attempt  INTEGER NOT NULL,
    stream   INTEGER NOT NULL CHECK (stream IN (0, 1)), -- result, log
    start    INTEGER NOT NULL, -- byte offset
    data     BLOB    NOT NULL,
    PRIMARY KEY (task_id, attempt, stream, start)
) STRICT, WITHOUT ROWID;

-- Agents that take work, and how it goes with them. An assignment takes a place in
-- in_flight, the end of its attempt gives it back.
CREATE TABLE workers (
    agent_id      TEXT    NOT NULL PRIMARY KEY REFERENCES agents (id),
    state         INTEGER NOT NULL CHECK (state BETWEEN 0 AND 2), -- offline, online, busy
    dialect       TEXT    NOT NULL,
    link          TEXT    NOT NULL, -- how it is reached: websocket, sse, poll, push, nats
    places        INTEGER NOT NULL CHECK (places > 0), -- attempts it takes at a time
    in_flight     INTEGER NOT NULL CHECK (in_flight >= 0),
    load          INTEGER NOT NULL, -- percent, as it says
    seen_at       INTEGER NOT NULL,
    used_at       INTEGER NOT NULL, -- the last assignment
    failures      INTEGER NOT NULL, -- timeouts and failed hand-overs since the last success
    breaker_until INTEGER NOT NULL, -- it gets no new work before; 0 when the breaker is closed
    probing       INTEGER NOT NULL CHECK (probing IN (0, 1)), -- the breaker waits for a sign of life
    version       INTEGER NOT NULL,
    updated_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX workers_updated ON workers (updated_at);
CREATE INDEX workers_seen ON workers (seen_at) WHERE state > 0;

-- What an agent is still to be told. A row is gone when the agent has it.
CREATE TABLE inbox (
    agent_id   TEXT    NOT NULL,
    id         TEXT    NOT NULL, -- UUIDv7, the message's id
    kind       TEXT    NOT NULL, -- assign, cancel, answer
    priority   INTEGER NOT NULL,
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    attempt    INTEGER NOT NULL,
    data       TEXT    NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    PRIMARY KEY (agent_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX inbox_task ON inbox (task_id);

-- +goose Down
DROP TABLE inbox;
DROP TABLE workers;
DROP TABLE task_outputs;
DROP TABLE attempts;
DROP TABLE task_requests;
DROP TABLE task_inputs;
DROP TABLE tasks;
DROP TABLE sessions;
DROP INDEX events_key;
