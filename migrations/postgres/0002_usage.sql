-- The token ledger and the outcomes of work (CHE·NU §5). Days and hours are counted since 1970
-- UTC; tokens are whole numbers.

-- +goose Up
-- The sums of charges by agent, hour and the agent's chain of ancestors at that time.
CREATE TABLE usage_windows (
    agent_id TEXT COLLATE "C" NOT NULL REFERENCES agents (id),
    hour     BIGINT           NOT NULL,
    path     TEXT COLLATE "C" NOT NULL, -- "nova/orch-…/…" down to the agent
    tokens   BIGINT           NOT NULL CHECK (tokens >= 0),
    PRIMARY KEY (agent_id, hour, path)
);
-- The usage below a chain of ancestors in a day is one range of this index.
CREATE INDEX usage_windows_rollup ON usage_windows ((hour / 24), path);

-- Every charge; rows never change. Windows and accounts are sums of these rows.
CREATE TABLE usage_facts (
    agent_id       TEXT COLLATE "C" NOT NULL,
    at             BIGINT           NOT NULL,
    id             TEXT COLLATE "C" NOT NULL, -- UUIDv7
    path           TEXT COLLATE "C" NOT NULL, -- the ancestors it counts on: "nova/orch-…/…" down to the agent
    tokens         BIGINT           NOT NULL CHECK (tokens > 0),
    model          TEXT             NOT NULL,
    kind           TEXT             NOT NULL,
    task_id        TEXT             NOT NULL,
    request_id     TEXT             NOT NULL, -- unique for the agent unless ''
    reservation_id TEXT             NOT NULL, -- the reservation it settled, or ''
    digest         BYTEA            NOT NULL, -- of the request, to distinguish a repeated request from another one
    PRIMARY KEY (agent_id, at, id)
);
CREATE UNIQUE INDEX usage_facts_request ON usage_facts (agent_id, request_id) WHERE request_id <> '';

-- One row for each agent that spends; a charge locks it. The subtree columns count only while
-- subtree is set.
CREATE TABLE usage_accounts (
    agent_id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    level            SMALLINT         NOT NULL,
    day              BIGINT           NOT NULL, -- the day the sums belong to; it never goes back
    used             BIGINT           NOT NULL DEFAULT 0, -- the sum of the day's facts
    forgiven         BIGINT           NOT NULL DEFAULT 0, -- the share of used that a reset wrote off
    reserved         BIGINT           NOT NULL DEFAULT 0, -- the sum of held reservations of any day
    subtree          BOOLEAN          NOT NULL DEFAULT FALSE,
    subtree_used     BIGINT           NOT NULL DEFAULT 0,
    subtree_forgiven BIGINT           NOT NULL DEFAULT 0,
    subtree_reserved BIGINT           NOT NULL DEFAULT 0,
    extra            BIGINT           NOT NULL DEFAULT 0, -- the sum of the additional budgets until extra_until
    extra_until      BIGINT           NOT NULL DEFAULT 0,
    warned_day       BIGINT           NOT NULL DEFAULT -1,
    exceeded_day     BIGINT           NOT NULL DEFAULT -1
);

CREATE TABLE usage_reservations (
    agent_id   TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL, -- UUIDv7
    path       TEXT COLLATE "C" NOT NULL, -- the ancestors that granted it; its settlement counts on them
    tokens     BIGINT           NOT NULL CHECK (tokens > 0),
    state      SMALLINT         NOT NULL CHECK (state BETWEEN 0 AND 3), -- held, settled, released, expired
    due        BIGINT           NOT NULL, -- while held the end of its lease, then its end
    expires_at BIGINT           NOT NULL,
    created_at BIGINT           NOT NULL,
    settled    BIGINT           NOT NULL DEFAULT 0, -- tokens
    digest     BYTEA, -- of the settlement
    PRIMARY KEY (agent_id, id)
);
CREATE INDEX usage_reservations_due ON usage_reservations (state, due);

CREATE TABLE budget_additions (
    agent_id   TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL, -- UUIDv7
    tokens     BIGINT           NOT NULL CHECK (tokens > 0),
    reason     TEXT             NOT NULL,
    expires_at BIGINT           NOT NULL, -- moved forward when the addition is withdrawn
    created_at BIGINT           NOT NULL,
    created_by TEXT             NOT NULL,
    PRIMARY KEY (agent_id, id)
);

CREATE TABLE usage_resets (
    agent_id TEXT COLLATE "C" NOT NULL,
    day      BIGINT           NOT NULL,
    id       TEXT COLLATE "C" NOT NULL, -- UUIDv7
    at       BIGINT           NOT NULL,
    own      BIGINT           NOT NULL, -- tokens written off
    subtree  BIGINT           NOT NULL, -- tokens written off of the roll-up, 0 with budget_scope own
    PRIMARY KEY (agent_id, day, id)
);

-- Facts and windows of days before from_day may have been deleted.
CREATE TABLE usage_retention (
    id       SMALLINT PRIMARY KEY CHECK (id = 1),
    from_day BIGINT NOT NULL
);
INSERT INTO usage_retention (id, from_day) VALUES (1, 0);

CREATE TABLE outcomes (
    id          TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7
    agent_id    TEXT COLLATE "C" NOT NULL REFERENCES agents (id),
    session_id  TEXT             NOT NULL,
    status      TEXT             NOT NULL CHECK (status IN ('success', 'failed', 'timeout', 'cancelled')),
    duration_ms BIGINT           CHECK (duration_ms >= 0), -- NULL where it was not measured
    at          BIGINT           NOT NULL
);
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
