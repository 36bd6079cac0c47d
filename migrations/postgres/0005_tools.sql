-- The MCP gateway (AgentCards): upstream servers added at run time, tool definitions, policies and
-- calls; and the usage graph and the vectors of the tool search, which are derived and expire.

-- +goose Up
CREATE TABLE upstreams (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    config     TEXT             NOT NULL, -- JSON, an entry of mcpServers; it names secrets and holds none
    version    BIGINT           NOT NULL,
    created_by TEXT             NOT NULL,
    created_at BIGINT           NOT NULL,
    updated_at BIGINT           NOT NULL
);

CREATE TABLE tool_definitions (
    server         TEXT COLLATE "C" NOT NULL,
    name           TEXT COLLATE "C" NOT NULL,
    state          TEXT             NOT NULL, -- approved, quarantined
    digest         TEXT             NOT NULL,
    definition     TEXT             NOT NULL, -- JSON
    pending_digest TEXT             NOT NULL, -- '' where no change awaits approval
    pending        TEXT             NOT NULL, -- JSON of that change, or ''
    class          TEXT             NOT NULL, -- '' for that of the annotations
    seen_at        BIGINT           NOT NULL,
    changed_at     BIGINT           NOT NULL, -- 0 for never
    approved_at    BIGINT           NOT NULL,
    approved_by    TEXT             NOT NULL,
    PRIMARY KEY (server, name)
);

CREATE TABLE tool_policies (
    token_id   TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES tokens (id) ON DELETE CASCADE,
    policy     TEXT             NOT NULL, -- JSON
    updated_at BIGINT           NOT NULL,
    updated_by TEXT             NOT NULL
);

CREATE TABLE tool_calls (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7: the order in which they began
    at        BIGINT           NOT NULL,
    source    TEXT             NOT NULL, -- mcp, rest, code, task
    token_id  TEXT COLLATE "C" NOT NULL,
    actor     TEXT             NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL, -- the agent that is charged
    server    TEXT COLLATE "C" NOT NULL,
    tool      TEXT COLLATE "C" NOT NULL,
    class     TEXT             NOT NULL,
    digest    TEXT             NOT NULL, -- of the arguments
    outcome   TEXT             NOT NULL, -- success, error, refused
    error     TEXT             NOT NULL, -- '' for none
    duration  BIGINT           NOT NULL, -- microseconds
    tokens    BIGINT           NOT NULL,
    parent_id TEXT COLLATE "C" NOT NULL, -- '' for none, as the two below
    task_id   TEXT COLLATE "C" NOT NULL,
    trace_id  TEXT             NOT NULL
);
CREATE INDEX tool_calls_agent ON tool_calls (agent_id, id);
CREATE INDEX tool_calls_tool ON tool_calls (server, tool, id);

-- How often two tools were used in one run.
CREATE TABLE tool_edges (
    from_tool TEXT COLLATE "C" NOT NULL, -- 'serverId:toolName', used first
    to_tool   TEXT COLLATE "C" NOT NULL,
    runs      BIGINT           NOT NULL, -- successful runs that used both
    last_used BIGINT           NOT NULL,
    PRIMARY KEY (from_tool, to_tool)
);
CREATE INDEX tool_edges_used ON tool_edges (last_used);

CREATE TABLE tool_nodes (
    tool      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    runs      BIGINT           NOT NULL,
    last_used BIGINT           NOT NULL,
    rank      DOUBLE PRECISION NOT NULL DEFAULT 0,
    community BIGINT           NOT NULL DEFAULT -1 -- -1 until it is computed
);
CREATE INDEX tool_nodes_used ON tool_nodes (last_used);

CREATE TABLE tool_vectors (
    digest    TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- SHA-256 of the model and the text
    vector    BYTEA            NOT NULL, -- 32-bit floats, little endian
    last_used BIGINT           NOT NULL
);
CREATE INDEX tool_vectors_used ON tool_vectors (last_used);

-- +goose Down
DROP TABLE tool_vectors;
DROP TABLE tool_nodes;
DROP TABLE tool_edges;
DROP TABLE tool_calls;
DROP TABLE tool_policies;
DROP TABLE tool_definitions;
DROP TABLE upstreams;
