-- Schedules, which submit tasks and start workflows.

-- +goose Up
CREATE TABLE schedules (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    token_id   TEXT COLLATE "C" NOT NULL, -- the owner
    actor      TEXT             NOT NULL, -- the name of the token
    spec       TEXT             NOT NULL, -- JSON: when it is due
    request    TEXT             NOT NULL, -- JSON: the task or the workflow
    next_at    BIGINT           NOT NULL, -- when it is due, as its job; 0 for never
    last_at    BIGINT           NOT NULL, -- when the last run was due, 0 before the first
    last_id    TEXT COLLATE "C" NOT NULL, -- its task or workflow, '' for none
    last_error TEXT             NOT NULL, -- why it has none
    enabled    BOOLEAN          NOT NULL,
    reason     TEXT             NOT NULL, -- why comet has disabled it, '' if it has not
    version    BIGINT           NOT NULL,
    created_at BIGINT           NOT NULL,
    updated_at BIGINT           NOT NULL
);
CREATE INDEX schedules_owner ON schedules (token_id, id);

-- +goose Down
DELETE FROM jobs WHERE kind = 'schedule.run';
DROP TABLE schedules;
