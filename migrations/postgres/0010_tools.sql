-- Which tools were used together, for who looks for one, and the vectors of their texts. What
-- is no longer used goes after a while, and nothing else depends on it.

-- +goose Up
CREATE TABLE tool_edges (
    from_tool TEXT COLLATE "C" NOT NULL, -- 'serverId:toolName', used before
    to_tool   TEXT COLLATE "C" NOT NULL,
    runs      BIGINT NOT NULL, -- successful ones in which both were used
    last_used BIGINT NOT NULL,
    PRIMARY KEY (from_tool, to_tool)
);
CREATE INDEX tool_edges_used ON tool_edges (last_used);

CREATE TABLE tool_nodes (
    tool      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    runs      BIGINT NOT NULL,
    failed    BIGINT NOT NULL,
    last_used BIGINT NOT NULL,
    rank      DOUBLE PRECISION NOT NULL DEFAULT 0,
    community BIGINT NOT NULL DEFAULT -1 -- -1 until it is computed
);
CREATE INDEX tool_nodes_used ON tool_nodes (last_used);

CREATE TABLE tool_vectors (
    digest    TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- SHA-256 of the model and the text
    vector    BYTEA NOT NULL, -- 32-bit floats, little endian
    last_used BIGINT NOT NULL
);
CREATE INDEX tool_vectors_used ON tool_vectors (last_used);

-- +goose Down
DROP TABLE tool_vectors;
DROP TABLE tool_nodes;
DROP TABLE tool_edges;
