-- Keys that agents sign their lines with, and the lines that were signed, so that none is
-- taken twice.

-- +goose Up
-- A key has to sign, so it is kept as it is.
CREATE TABLE agent_keys (
    agent_id   TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES agents (id),
    secret     TEXT    NOT NULL,
    required   BOOLEAN NOT NULL, -- every line of the agent has to be signed
    created_at BIGINT  NOT NULL,
    created_by TEXT    NOT NULL
);

CREATE TABLE signed_lines (
    agent_id TEXT COLLATE "C" NOT NULL,
    mark     BYTEA  NOT NULL, -- a digest of what may not come again
    at       BIGINT NOT NULL,
    PRIMARY KEY (agent_id, mark)
);
CREATE INDEX signed_lines_at ON signed_lines (at);

-- +goose Down
DROP TABLE signed_lines;
DROP TABLE agent_keys;
