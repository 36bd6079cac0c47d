-- The MCP gateway (AgentCards): upstream servers added at run time, tool definitions, policies and
-- calls; and the usage graph and the vectors of the tool search, which are derived and expire.

-- +goose Up
CREATE TABLE upstreams (
    id         TEXT    NOT NULL PRIMARY KEY,
    config     TEXT    NOT NULL, -- JSON, an entry of mcpServers; it names secrets and holds none
    version    INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_definitions (
    server         TEXT    NOT NULL,
    name           TEXT    NOT NULL,
    state          TEXT    NOT NULL, -- approved, quarantined
    digest         TEXT    NOT NULL,
    definition     TEXT    NOT NULL, -- JSON
    pending_digest TEXT    NOT NULL, -- '' where no change awaits approval
    pending        TEXT    NOT NULL, -- JSON of that change, or ''
    class          TEXT    NOT NULL, -- '' for that of the annotations
    seen_at        INTEGER NOT NULL,
    changed_at     INTEGER NOT NULL, -- 0 for never
    approved_at    INTEGER NOT NULL,
    approved_by    TEXT    NOT NULL,
    PRIMARY KEY (server, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_policies (
    token_id   TEXT    NOT NULL PRIMARY KEY REFERENCES tokens (id) ON DELETE CASCADE,
    policy     TEXT    NOT NULL, -- JSON
    updated_at INTEGER NOT NULL,
    updated_by TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE tool_calls (
    id        TEXT    NOT NULL PRIMARY KEY, -- UUIDv7: the order in which they began
    at        INTEGER NOT NULL,
    source    TEXT    NOT NULL, -- mcp, rest, code, task
    token_id  TEXT    NOT NULL,
    actor     TEXT    NOT NULL,
    agent_id  TEXT    NOT NULL, -- the agent that is charged
    server    TEXT    NOT NULL,
    tool      TEXT    NOT NULL,
    class     TEXT    NOT NULL,
    digest    TEXT    NOT NULL, -- of the arguments
    outcome   TEXT    NOT NULL, -- success, error, refused
    error     TEXT    NOT NULL, -- '' for none
    duration  INTEGER NOT NULL, -- microseconds
    tokens    INTEGER NOT NULL,
    parent_id TEXT    NOT NULL, -- '' for none, as the two below
    task_id   TEXT    NOT NULL,
    trace_id  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_calls_agent ON tool_calls (agent_id, id);
CREATE INDEX tool_calls_tool ON tool_calls (server, tool, id);

-- How often two tools were used in one run.
CREATE TABLE tool_edges (
    from_tool TEXT    NOT NULL, -- 'serverId:toolName', used first
    to_tool   TEXT    NOT NULL,
    runs      INTEGER NOT NULL, -- successful runs that used both
    last_used INTEGER NOT NULL,
    PRIMARY KEY (from_tool, to_tool)
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_edges_used ON tool_edges (last_used);

CREATE TABLE tool_nodes (
    tool      TEXT    NOT NULL PRIMARY KEY,
    runs      INTEGER NOT NULL,
    last_used INTEGER NOT NULL,
    rank      REAL    NOT NULL DEFAULT 0,
    community INTEGER NOT NULL DEFAULT -1 -- -1 until it is computed
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_nodes_used ON tool_nodes (last_used);

CREATE TABLE tool_vectors (
    digest    TEXT    NOT NULL PRIMARY KEY, -- SHA-256 of the model and the text
    vector    BLOB    NOT NULL, -- 32-bit floats, little endian
    last_used INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_vectors_used ON tool_vectors (last_used);

-- +goose Down
DROP TABLE tool_vectors;
DROP TABLE tool_nodes;
DROP TABLE tool_edges;
DROP TABLE tool_calls;
DROP TABLE tool_policies;
DROP TABLE tool_definitions;
DROP TABLE upstreams;
