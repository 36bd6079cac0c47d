-- The token ledger and the outcomes of work (CHE·NU §5). Days and hours are counted since 1970
-- UTC; tokens are whole numbers.

-- +goose Up
-- The sums of charges by agent, hour and the agent's chain of ancestors at that time.
CREATE TABLE usage_windows (
    agent_id TEXT    NOT NULL REFERENCES agents (id),
    hour     INTEGER NOT NULL,
    path     TEXT    NOT NULL, -- "nova/orch-…/…" down to the agent
    tokens   INTEGER NOT NULL CHECK (tokens >= 0),
    PRIMARY KEY (agent_id, hour, path)
) STRICT, WITHOUT ROWID;
-- The usage below a chain of ancestors in a day is one range of this index.
CREATE INDEX usage_windows_rollup ON usage_windows (hour / 24, path, tokens);

-- Every charge; rows never change. Windows and accounts are sums of these rows.
CREATE TABLE usage_facts (
    agent_id       TEXT    NOT NULL,
    at             INTEGER NOT NULL,
    id             TEXT    NOT NULL, -- UUIDv7
    path           TEXT    NOT NULL, -- the ancestors it counts on: "nova/orch-…/…" down to the agent
    tokens         INTEGER NOT NULL CHECK (tokens > 0),
    model          TEXT    NOT NULL,
    kind           TEXT    NOT NULL,
    task_id        TEXT    NOT NULL,
    request_id     TEXT    NOT NULL, -- unique for the agent unless ''
    reservation_id TEXT    NOT NULL, -- the reservation it settled, or ''
    digest         BLOB    NOT NULL, -- of the request, to distinguish a repeated request from another one
    PRIMARY KEY (agent_id, at, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX usage_facts_request ON usage_facts (agent_id, request_id) WHERE request_id <> '';

-- One row for each agent that spends; a charge locks it. The subtree columns count only while
-- subtree is set.
CREATE TABLE usage_accounts (
    agent_id         TEXT    NOT NULL PRIMARY KEY,
    level            INTEGER NOT NULL,
    day              INTEGER NOT NULL, -- the day the sums belong to; it never goes back
    used             INTEGER NOT NULL DEFAULT 0, -- the sum of the day's facts
    forgiven         INTEGER NOT NULL DEFAULT 0, -- the share of used that a reset wrote off
    reserved         INTEGER NOT NULL DEFAULT 0, -- the sum of held reservations of any day
    subtree          INTEGER NOT NULL DEFAULT 0 CHECK (subtree IN (0, 1)),
    subtree_used     INTEGER NOT NULL DEFAULT 0,
    subtree_forgiven INTEGER NOT NULL DEFAULT 0,
    subtree_reserved INTEGER NOT NULL DEFAULT 0,
    extra            INTEGER NOT NULL DEFAULT 0, -- the sum of the additional budgets until extra_until
    extra_until      INTEGER NOT NULL DEFAULT 0,
    warned_day       INTEGER NOT NULL DEFAULT -1,
    exceeded_day     INTEGER NOT NULL DEFAULT -1
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_reservations (
    agent_id   TEXT    NOT NULL,
    id         TEXT    NOT NULL, -- UUIDv7
    path       TEXT    NOT NULL, -- the ancestors that granted it; its settlement counts on them
    tokens     INTEGER NOT NULL CHECK (tokens > 0),
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3), -- held, settled, released, expired
    due        INTEGER NOT NULL, -- while held the end of its lease, then its end
    expires_at INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    settled    INTEGER NOT NULL DEFAULT 0, -- tokens
    digest     BLOB, -- of the settlement
    PRIMARY KEY (agent_id, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_reservations_due ON usage_reservations (state, due);

CREATE TABLE budget_additions (
    agent_id   TEXT    NOT NULL,
    id         TEXT    NOT NULL, -- UUIDv7
    tokens     INTEGER NOT NULL CHECK (tokens > 0),
    reason     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL, -- moved forward when the addition is withdrawn
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    PRIMARY KEY (agent_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE usage_resets (
    agent_id TEXT    NOT NULL,
    day      INTEGER NOT NULL,
    id       TEXT    NOT NULL, -- UUIDv7
    at       INTEGER NOT NULL,
    own      INTEGER NOT NULL, -- tokens written off
    subtree  INTEGER NOT NULL, -- tokens written off of the roll-up, 0 with budget_scope own
    PRIMARY KEY (agent_id, day, id)
) STRICT, WITHOUT ROWID;

-- Facts and windows of days before from_day may have been deleted.
CREATE TABLE usage_retention (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    from_day INTEGER NOT NULL
) STRICT;
INSERT INTO usage_retention (id, from_day) VALUES (1, 0);

CREATE TABLE outcomes (
    id          TEXT    NOT NULL PRIMARY KEY, -- UUIDv7
    agent_id    TEXT    NOT NULL REFERENCES agents (id),
    session_id  TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('success', 'failed', 'timeout', 'cancelled')),
    duration_ms INTEGER CHECK (duration_ms >= 0), -- NULL where it was not measured
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX outcomes_agent ON outcomes (agent_id, at, session_id, status, duration_ms);

-- +goose Down
DROP TABLE outcomes;
DROP TABLE usage_retention;
DROP TABLE usage_resets;
DROP TABLE budget_additions;
DROP TABLE usage_reservations;
DROP TABLE usage_accounts;
DROP TABLE usage_facts;
DROP TABLE usage_windows;
