-- The MCP gateway (AgentCards): upstreams that were added at run time, what is known about
-- tools, what a token may do with them, and who called what.

-- +goose Up
CREATE TABLE upstreams (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    config     TEXT    NOT NULL, -- JSON, an entry of mcpServers; it names secrets and holds none
    version    BIGINT NOT NULL,
    created_by TEXT    NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);

CREATE TABLE tool_definitions (
    server         TEXT COLLATE "C" NOT NULL,
    name           TEXT COLLATE "C" NOT NULL,
    state          TEXT    NOT NULL, -- approved, quarantined
    digest         TEXT    NOT NULL,
    definition     TEXT    NOT NULL, -- JSON
    pending_digest TEXT    NOT NULL, -- '' for nothing that waits for approval
    pending        TEXT    NOT NULL, -- JSON, '' likewise
    class          TEXT    NOT NULL, -- '' for what the annotations say
    seen_at        BIGINT NOT NULL,
    changed_at     BIGINT NOT NULL, -- 0 for never
    approved_at    BIGINT NOT NULL,
    approved_by    TEXT    NOT NULL,
    PRIMARY KEY (server, name)
);

CREATE TABLE tool_policies (
    token_id   TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES tokens (id) ON DELETE CASCADE,
    policy     TEXT    NOT NULL, -- JSON
    updated_at BIGINT NOT NULL,
    updated_by TEXT    NOT NULL
);

CREATE TABLE tool_calls (
    id        TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7: the order in which they began
    at        BIGINT NOT NULL,
    door      TEXT    NOT NULL, -- mcp, rest, code, task
    token_id  TEXT COLLATE "C" NOT NULL,
    actor     TEXT    NOT NULL,
    agent_id  TEXT COLLATE "C" NOT NULL, -- who paid
    server    TEXT COLLATE "C" NOT NULL,
    tool      TEXT COLLATE "C" NOT NULL,
    class     TEXT    NOT NULL,
    digest    TEXT    NOT NULL, -- of the arguments
    outcome   TEXT    NOT NULL, -- success, error, refused
    error     TEXT    NOT NULL, -- '' for nothing
    duration  BIGINT NOT NULL, -- microseconds
    tokens    BIGINT NOT NULL,
    parent_id TEXT COLLATE "C" NOT NULL, -- '' for none, as the two below
    task_id   TEXT COLLATE "C" NOT NULL,
    trace_id  TEXT    NOT NULL
);
CREATE INDEX tool_calls_agent ON tool_calls (agent_id, id);
CREATE INDEX tool_calls_tool ON tool_calls (server, tool, id);

-- +goose Down
DROP TABLE tool_calls;
DROP TABLE tool_policies;
DROP TABLE tool_definitions;
DROP TABLE upstreams;
