-- Which tools were used together, for who looks for one, and the vectors of their texts. What
-- is no longer used goes after a while, and nothing else depends on it.

-- +goose Up
CREATE TABLE tool_edges (
    from_tool TEXT NOT NULL, -- 'serverId:toolName', used before
    to_tool   TEXT NOT NULL,
    runs      INTEGER NOT NULL, -- successful ones in which both were used
    last_used INTEGER NOT NULL,
    PRIMARY KEY (from_tool, to_tool)
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_edges_used ON tool_edges (last_used);

CREATE TABLE tool_nodes (
    tool      TEXT NOT NULL PRIMARY KEY,
    runs      INTEGER NOT NULL,
    failed    INTEGER NOT NULL,
    last_used INTEGER NOT NULL,
    rank      REAL NOT NULL DEFAULT 0,
    community INTEGER NOT NULL DEFAULT -1 -- -1 until it is computed
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_nodes_used ON tool_nodes (last_used);

CREATE TABLE tool_vectors (
    digest    TEXT NOT NULL PRIMARY KEY, -- SHA-256 of the model and the text
    vector    BLOB NOT NULL, -- 32-bit floats, little endian
    last_used INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_vectors_used ON tool_vectors (last_used);

-- +goose Down
DROP TABLE tool_vectors;
DROP TABLE tool_nodes;
DROP TABLE tool_edges;
