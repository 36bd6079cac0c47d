-- Tasks that were requested over A2A, and their messages.

-- +goose Up
CREATE TABLE a2a_tasks (
    id         TEXT    NOT NULL PRIMARY KEY, -- also the id in tasks once the core has the task
    owner      TEXT    NOT NULL, -- the token
    context_id TEXT    NOT NULL, -- the session
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3), -- a task of the core, and without one: asking for a capability, rejected, canceled
    reason     TEXT    NOT NULL, -- why it was rejected, '' otherwise
    options    TEXT    NOT NULL, -- a JSON array of capabilities, '' unless it has asked for one
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL -- of the last change that is not one of tasks: of the state, or a message
);
CREATE INDEX a2a_tasks_owner ON a2a_tasks (owner, context_id);
CREATE INDEX a2a_tasks_updated ON a2a_tasks (updated_at);

CREATE TABLE task_messages (
    task_id    TEXT    NOT NULL REFERENCES a2a_tasks (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL, -- from 1, in the order of the conversation
    owner      TEXT    NOT NULL, -- the token that sent it, '' for messages of agents
    message_id TEXT    NOT NULL,
    digest     TEXT    NOT NULL, -- of the content, to tell a repetition from another message with the same id
    message    TEXT    NOT NULL, -- JSON
    at         INTEGER NOT NULL,
    PRIMARY KEY (task_id, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX task_messages_sent ON task_messages (owner, message_id) WHERE owner <> '';

-- +goose Down
DROP TABLE task_messages;
DROP TABLE a2a_tasks;
