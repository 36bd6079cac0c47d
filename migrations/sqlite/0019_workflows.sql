-- Durable workflows (AgentCards, “execute_dag”).

-- +goose Up
CREATE TABLE workflows (
    id         TEXT    NOT NULL PRIMARY KEY, -- 'wf_' and a UUIDv7 in base 32
    token_id   TEXT    NOT NULL, -- the owner
    actor      TEXT    NOT NULL, -- the name of the token
    payer      TEXT    NOT NULL, -- the agent that is charged
    source     TEXT    NOT NULL, -- where it was started: mcp, rest, code, task
    session    TEXT    NOT NULL,
    trace_id   TEXT    NOT NULL,
    options    TEXT    NOT NULL, -- JSON
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 4), -- running, paused, complete, aborted, error
    pause      TEXT    NOT NULL, -- '' unless it is paused: layer, approval, uncertain
    confirmed  INTEGER NOT NULL, -- the number of confirmed layers
    holder     TEXT    NOT NULL, -- the process that runs it, '' for none
    error_code TEXT    NOT NULL,
    reason     TEXT    NOT NULL, -- why it has ended, '' if all steps did
    version    INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL -- 0 until it has ended
);
CREATE INDEX workflows_owner ON workflows (token_id, id);
CREATE INDEX workflows_active ON workflows (token_id) WHERE state < 2;
CREATE INDEX workflows_running ON workflows (holder) WHERE state = 0;
CREATE INDEX workflows_ended ON workflows (ended_at) WHERE state >= 2;

CREATE TABLE workflow_steps (
    workflow_id TEXT    NOT NULL,
    position    INTEGER NOT NULL, -- from 0, in the order of the request
    definition  TEXT    NOT NULL, -- JSON
    state       INTEGER NOT NULL CHECK (state BETWEEN 0 AND 5), -- pending, running, success, error, skipped, uncertain
    attempt     INTEGER NOT NULL,
    repeatable  INTEGER NOT NULL, -- whether the running attempt may run again when its result is lost
    approved    TEXT    NOT NULL, -- the digest that was approved, '' for none
    task_id     TEXT    NOT NULL,
    error_code  TEXT    NOT NULL,
    error       TEXT    NOT NULL,
    started_at  INTEGER NOT NULL, -- 0 until it has started
    ended_at    INTEGER NOT NULL, -- 0 until it has ended
    result      TEXT    NOT NULL, -- JSON, '' without one
    PRIMARY KEY (workflow_id, position)
) WITHOUT ROWID;

CREATE TABLE checkpoints (
    id          TEXT    NOT NULL PRIMARY KEY, -- 'cp_' and a UUIDv7 in base 32
    workflow_id TEXT    NOT NULL,
    kind        TEXT    NOT NULL, -- layer, approval, uncertain
    layer       INTEGER NOT NULL, -- the completed layer, 0 for the other kinds
    shown       TEXT    NOT NULL, -- JSON: the steps with arguments and digests
    digest      TEXT    NOT NULL, -- of shown
    state       TEXT    NOT NULL, -- open, approved, rejected, stale, expired
    decided_by  TEXT    NOT NULL, -- the token, '' for none
    feedback    TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    decided_at  INTEGER NOT NULL, -- 0 while it is open
    expires_at  INTEGER NOT NULL
);
CREATE UNIQUE INDEX checkpoints_open ON checkpoints (workflow_id) WHERE state = 'open';
CREATE INDEX checkpoints_workflow ON checkpoints (workflow_id, id);

-- +goose Down
DROP TABLE checkpoints;
DROP TABLE workflow_steps;
DROP TABLE workflows;
