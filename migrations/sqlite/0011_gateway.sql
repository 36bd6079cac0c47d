-- The MCP gateway (AgentCards): upstreams that were added at run time, what is known about
-- tools, what a token may do with them, and who called what.

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
    pending_digest TEXT    NOT NULL, -- '' for nothing that waits for approval
    pending        TEXT    NOT NULL, -- JSON, '' likewise
    class          TEXT    NOT NULL, -- '' for what the annotations say
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
    door      TEXT    NOT NULL, -- mcp, rest, code, task
    token_id  TEXT    NOT NULL,
    actor     TEXT    NOT NULL,
    agent_id  TEXT    NOT NULL, -- who paid
    server    TEXT    NOT NULL,
    tool      TEXT    NOT NULL,
    class     TEXT    NOT NULL,
    digest    TEXT    NOT NULL, -- of the arguments
    outcome   TEXT    NOT NULL, -- success, error, refused
    error     TEXT    NOT NULL, -- '' for nothing
    duration  INTEGER NOT NULL, -- microseconds
    tokens    INTEGER NOT NULL,
    parent_id TEXT    NOT NULL, -- '' for none, as the two below
    task_id   TEXT    NOT NULL,
    trace_id  TEXT    NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tool_calls_agent ON tool_calls (agent_id, id);
CREATE INDEX tool_calls_tool ON tool_calls (server, tool, id);

-- +goose Down
DROP TABLE tool_calls;
DROP TABLE tool_policies;
DROP TABLE tool_definitions;
DROP TABLE upstreams;
