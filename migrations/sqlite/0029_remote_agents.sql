-- Remote A2A agents, which execute the tasks of agents of the registry.

-- +goose Up
CREATE TABLE remote_agents (
    agent_id    TEXT    NOT NULL PRIMARY KEY REFERENCES agents (id) ON DELETE CASCADE,
    card_url    TEXT    NOT NULL,
    concurrency INTEGER NOT NULL,
    auth_header TEXT    NOT NULL, -- the header with the secret, '' for none
    auth_type   TEXT    NOT NULL CHECK (auth_type IN ('none', 'bearer', 'header')),
    secret      BLOB, -- sealed; the value of the header without its scheme, NULL for none
    card        TEXT    NOT NULL, -- JSON, '' before the first check that succeeded
    etag        TEXT    NOT NULL, -- of the card, '' for none
    checked_at  INTEGER NOT NULL, -- the last check of the card, 0 before the first
    error       TEXT    NOT NULL, -- of the last check, '' if it succeeded
    holder      TEXT    NOT NULL, -- the connection that takes its inbox, '' for none
    version     INTEGER NOT NULL,
    created_by  TEXT    NOT NULL,
    created_at  INTEGER NOT NULL,
    updated_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE remote_tasks (
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    attempt    INTEGER NOT NULL,
    agent_id   TEXT    NOT NULL,
    session_id TEXT    NOT NULL, -- '' for none
    remote_id  TEXT    NOT NULL, -- the id that the remote agent has given the task
    context_id TEXT    NOT NULL, -- and its context
    asked      TEXT    NOT NULL, -- digest of the last question that was passed on, '' for none
    PRIMARY KEY (task_id, attempt)
) STRICT, WITHOUT ROWID;
CREATE INDEX remote_tasks_session ON remote_tasks (session_id, agent_id) WHERE session_id <> '';

-- +goose Down
DROP TABLE remote_tasks;
DROP TABLE remote_agents;
