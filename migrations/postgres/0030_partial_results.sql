-- Partial results, which agents send before the result of a task (Genesis, Request-Stream Pattern).

-- +goose Up
CREATE TABLE task_partials (
    task_id    TEXT COLLATE "C" NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    seq        BIGINT           NOT NULL, -- from 1, of all attempts
    attempt    INTEGER          NOT NULL,
    bytes      BIGINT           NOT NULL, -- the length of the data up to this row
    data       TEXT             NOT NULL, -- JSON
    created_at BIGINT           NOT NULL,
    PRIMARY KEY (task_id, seq)
);

-- +goose Down
DROP TABLE task_partials;
