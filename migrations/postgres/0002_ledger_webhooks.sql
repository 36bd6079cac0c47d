-- What agents spend and may spend, and who hears of it (CHE·NU §5, §9). Days and
-- hours are counted since 1970 UTC; tokens are whole numbers.

-- +goose Up
ALTER TABLE agents ADD COLUMN budget_scope TEXT NOT NULL DEFAULT 'own' CHECK (budget_scope IN ('own', 'subtree'));
ALTER TABLE audit ADD COLUMN reason TEXT NOT NULL DEFAULT '';

-- What was spent below a chain of ancestors in a day is one range of this index.
CREATE INDEX usage_windows_rollup ON usage_windows ((hour / 24), path);

-- Every charge, for ever the same. Windows and accounts are sums of these rows.
CREATE TABLE usage_facts (
    agent_id       TEXT COLLATE "C"    NOT NULL,
    at             BIGINT NOT NULL,
    id             TEXT COLLATE "C"    NOT NULL, -- UUIDv7
    path           TEXT COLLATE "C"    NOT NULL, -- the ancestors it counts on: "nova/orch-…/…" down to the agent
    tokens         BIGINT NOT NULL CHECK (tokens > 0),
    model          TEXT    NOT NULL,
    kind           TEXT    NOT NULL,
    task_id        TEXT    NOT NULL,
    request_id     TEXT    NOT NULL, -- unique for the agent unless ''
    reservation_id TEXT    NOT NULL, -- the reservation it settled, or ''
    digest         BYTEA    NOT NULL, -- of what the request said, to tell a repeated request from another one
    PRIMARY KEY (agent_id, at, id)
);
CREATE UNIQUE INDEX usage_facts_request ON usage_facts (agent_id, request_id) WHERE request_id <> '';

-- One row an agent that spends: the row a charge locks, so that it is decided on
-- what is true. The subtree columns count only while subtree is set.
CREATE TABLE usage_accounts (
    agent_id         TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    level            SMALLINT NOT NULL,
    day              BIGINT NOT NULL, -- the day the sums belong to; it never goes back
    used             BIGINT NOT NULL DEFAULT 0, -- the sum of the day's facts
    forgiven         BIGINT NOT NULL DEFAULT 0, -- the part of it that a reset wrote off
    reserved         BIGINT NOT NULL DEFAULT 0, -- the sum of what is held, whatever the day
    subtree          BOOLEAN NOT NULL DEFAULT FALSE,
    subtree_used     BIGINT NOT NULL DEFAULT 0,
    subtree_forgiven BIGINT NOT NULL DEFAULT 0,
    subtree_reserved BIGINT NOT NULL DEFAULT 0,
    extra            BIGINT NOT NULL DEFAULT 0, -- the sum of the additional budgets until extra_until
    extra_until      BIGINT NOT NULL DEFAULT 0,
    warned_day       BIGINT NOT NULL DEFAULT -1,
    exceeded_day     BIGINT NOT NULL DEFAULT -1
);

CREATE TABLE usage_reservations (
    agent_id   TEXT COLLATE "C"    NOT NULL,
    id         TEXT COLLATE "C"    NOT NULL, -- UUIDv7
    path       TEXT COLLATE "C"    NOT NULL, -- the ancestors that granted it; what it is settled with counts on them
    tokens     BIGINT NOT NULL CHECK (tokens > 0),
    state      SMALLINT NOT NULL CHECK (state BETWEEN 0 AND 3), -- held, settled, released, expired
    due        BIGINT NOT NULL, -- while it is held the end of its lease, then when it ended
    expires_at BIGINT NOT NULL,
    created_at BIGINT NOT NULL,
    settled    BIGINT NOT NULL DEFAULT 0, -- tokens
    digest     BYTEA,                       -- of the settlement
    PRIMARY KEY (agent_id, id)
);
CREATE INDEX usage_reservations_due ON usage_reservations (state, due);

CREATE TABLE budget_additions (
    agent_id   TEXT COLLATE "C"    NOT NULL,
    id         TEXT COLLATE "C"    NOT NULL, -- UUIDv7
    tokens     BIGINT NOT NULL CHECK (tokens > 0),
    reason     TEXT    NOT NULL,
    expires_at BIGINT NOT NULL, -- moved forward when it is taken back
    created_at BIGINT NOT NULL,
    created_by TEXT    NOT NULL,
    PRIMARY KEY (agent_id, id)
);

CREATE TABLE usage_resets (
    agent_id TEXT COLLATE "C"    NOT NULL,
    day      BIGINT NOT NULL,
    id       TEXT COLLATE "C"    NOT NULL, -- UUIDv7
    at       BIGINT NOT NULL,
    own      BIGINT NOT NULL, -- tokens written off
    subtree  BIGINT NOT NULL, -- tokens written off of the roll-up, 0 with budget_scope own
    PRIMARY KEY (agent_id, day, id)
);

-- Facts and windows of days before this one may have been deleted.
CREATE TABLE usage_kept (
    id       SMALLINT PRIMARY KEY CHECK (id = 1),
    from_day BIGINT NOT NULL
);
-- Windows that are there already have no facts.
INSERT INTO usage_kept (id, from_day) SELECT 1, coalesce(max(hour) / 24 + 1, 0) FROM usage_windows;

-- An outcome says how it ended, not only whether well.
CREATE TABLE outcomes_with_status (
    id          TEXT COLLATE "C"    NOT NULL PRIMARY KEY, -- UUIDv7
    agent_id    TEXT COLLATE "C"    NOT NULL REFERENCES agents (id),
    session_id  TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('success', 'failed', 'timeout', 'cancelled')),
    duration_ms BIGINT CHECK (duration_ms >= 0), -- NULL where nobody measured it
    at          BIGINT NOT NULL
);
INSERT INTO outcomes_with_status (id, agent_id, session_id, status, duration_ms, at)
    SELECT id, agent_id, session_id, CASE WHEN success THEN 'success' ELSE 'failed' END, duration_ms, at FROM outcomes;
DROP TABLE outcomes;
ALTER TABLE outcomes_with_status RENAME TO outcomes;
ALTER INDEX outcomes_with_status_pkey RENAME TO outcomes_pkey;
CREATE INDEX outcomes_agent ON outcomes (agent_id, at, session_id, status, duration_ms);

CREATE TABLE webhooks (
    id              TEXT COLLATE "C"    NOT NULL PRIMARY KEY, -- UUIDv7
    url             TEXT    NOT NULL,
    description     TEXT    NOT NULL,
    events          TEXT    NOT NULL, -- JSON array
    agent_id        TEXT COLLATE "C"    REFERENCES agents (id), -- NULL hears of every agent
    subtree         BOOLEAN NOT NULL, -- of the agents below agent_id too
    ordering        TEXT    NOT NULL CHECK (ordering IN ('none', 'agent')),
    enabled         BOOLEAN NOT NULL,
    disabled_reason TEXT    NOT NULL DEFAULT '',
    disabled_at     BIGINT,
    failing_since   BIGINT, -- the first failure after the last success
    failures        BIGINT  NOT NULL DEFAULT 0, -- since then, the first few only
    secret          BYTEA    NOT NULL, -- it signs, so it cannot be kept as a hash
    signing_key     BYTEA,             -- Ed25519 seed; NULL signs with the secret only
    old_secret      BYTEA,             -- signs too until old_until
    old_signing_key BYTEA,
    old_until       BIGINT NOT NULL DEFAULT 0,
    lease_owner     TEXT    NOT NULL DEFAULT '', -- the replica that delivers
    lease_until     BIGINT NOT NULL DEFAULT 0,
    created_by      TEXT    NOT NULL,
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);

CREATE TABLE deliveries (
    webhook_id TEXT COLLATE "C"    NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    id         TEXT COLLATE "C"    NOT NULL, -- UUIDv7 of created_at, in the order of position
    event_id   TEXT COLLATE "C"    NOT NULL,
    position   BIGINT NOT NULL, -- of the event; 0 for a test
    type       TEXT    NOT NULL,
    key        TEXT COLLATE "C"    NOT NULL,
    event_at   BIGINT NOT NULL,
    data       TEXT    NOT NULL,
    state      SMALLINT NOT NULL CHECK (state BETWEEN 0 AND 3), -- waiting behind another of its key, ready, succeeded, dead
    in_line    SMALLINT NOT NULL DEFAULT 0 CHECK (in_line IN (0, 1)), -- whether those of its key go one after the other
    due        BIGINT NOT NULL, -- until it has ended the next attempt, then when it ended
    attempts   BIGINT NOT NULL DEFAULT 0, -- all of them
    tries      BIGINT NOT NULL DEFAULT 0, -- since it was created or redelivered
    created_at BIGINT NOT NULL,
    -- The newest attempt; most deliveries have but one.
    last_at       BIGINT NOT NULL DEFAULT 0,
    last_ms       BIGINT NOT NULL DEFAULT 0, -- how long it took
    last_status   BIGINT NOT NULL DEFAULT 0, -- of the response; 0 for none
    last_error    TEXT    NOT NULL DEFAULT '', -- '' for a success
    last_response TEXT    NOT NULL DEFAULT '', -- the beginning of the body
    PRIMARY KEY (webhook_id, id)
);
CREATE UNIQUE INDEX deliveries_event ON deliveries (event_id, webhook_id);
CREATE INDEX deliveries_due ON deliveries (webhook_id, due, position) WHERE state = 1;
CREATE INDEX deliveries_line ON deliveries (webhook_id, key, position) WHERE state < 2 AND in_line = 1;
CREATE INDEX deliveries_dead ON deliveries (webhook_id, id) WHERE state = 3;

-- The attempts before the newest.
CREATE TABLE delivery_attempts (
    webhook_id  TEXT COLLATE "C"    NOT NULL,
    delivery_id TEXT COLLATE "C"    NOT NULL,
    attempt     BIGINT NOT NULL, -- from 1
    at          BIGINT NOT NULL,
    duration_ms BIGINT NOT NULL,
    status      BIGINT NOT NULL,
    error       TEXT    NOT NULL,
    response    TEXT    NOT NULL,
    PRIMARY KEY (webhook_id, delivery_id, attempt),
    FOREIGN KEY (webhook_id, delivery_id) REFERENCES deliveries (webhook_id, id) ON DELETE CASCADE
);

-- +goose Down
DROP TABLE delivery_attempts;
DROP TABLE deliveries;
DROP TABLE webhooks;
CREATE TABLE outcomes_with_success (
    id          TEXT COLLATE "C"    NOT NULL PRIMARY KEY,
    agent_id    TEXT COLLATE "C"    NOT NULL REFERENCES agents (id),
    session_id  TEXT    NOT NULL,
    success     BOOLEAN NOT NULL,
    duration_ms BIGINT NOT NULL CHECK (duration_ms >= 0),
    at          BIGINT NOT NULL
);
INSERT INTO outcomes_with_success (id, agent_id, session_id, success, duration_ms, at)
    SELECT id, agent_id, session_id, status = 'success', coalesce(duration_ms, 0), at FROM outcomes;
DROP TABLE outcomes;
ALTER TABLE outcomes_with_success RENAME TO outcomes;
ALTER INDEX outcomes_with_success_pkey RENAME TO outcomes_pkey;
CREATE INDEX outcomes_agent ON outcomes (agent_id, at, session_id, success, duration_ms);
DROP TABLE usage_kept;
DROP TABLE usage_resets;
DROP TABLE budget_additions;
DROP TABLE usage_reservations;
DROP TABLE usage_accounts;
DROP TABLE usage_facts;
DELETE FROM usage_windows; -- their facts are gone
DROP INDEX usage_windows_rollup;
ALTER TABLE audit DROP COLUMN reason;
ALTER TABLE agents DROP COLUMN budget_scope;
