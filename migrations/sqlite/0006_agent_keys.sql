-- Keys that agents sign their lines with, and the lines that were signed, so that none is
-- taken twice.

-- +goose Up
-- A key has to sign, so it is kept as it is.
CREATE TABLE agent_keys (
    agent_id   TEXT    NOT NULL PRIMARY KEY REFERENCES agents (id),
    secret     TEXT    NOT NULL,
    required   INTEGER NOT NULL, -- every line of the agent has to be signed
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE signed_lines (
    agent_id TEXT    NOT NULL,
    mark     BLOB    NOT NULL, -- a digest of what may not come again
    at       INTEGER NOT NULL,
    PRIMARY KEY (agent_id, mark)
) STRICT, WITHOUT ROWID;
CREATE INDEX signed_lines_at ON signed_lines (at);

-- +goose Down
DROP TABLE signed_lines;
DROP TABLE agent_keys;
