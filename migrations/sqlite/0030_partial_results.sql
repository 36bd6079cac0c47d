-- Partial results, which agents send before the result of a task (Genesis, Request-Stream Pattern).

-- +goose Up
CREATE TABLE task_partials (
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE,
    seq        INTEGER NOT NULL, -- from 1, of all attempts
    attempt    INTEGER NOT NULL,
    bytes      INTEGER NOT NULL, -- the length of the data up to this row
    data       TEXT    NOT NULL, -- JSON
    created_at INTEGER NOT NULL,
    PRIMARY KEY (task_id, seq)
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE task_partials;
