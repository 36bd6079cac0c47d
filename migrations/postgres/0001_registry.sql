-- The registry of agents, its audit log, events, jobs and tokens (CHE·NU). Every time is UTC in
-- whole microseconds since 1970, so both databases sort and compare it alike.
-- Columns that are sorted by name or id use the "C" collation for the same reason.

-- +goose Up
CREATE TABLE agents (
    id           TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name         TEXT COLLATE "C" NOT NULL,
    level        SMALLINT         NOT NULL CHECK (level BETWEEN 0 AND 3),
    sphere_id    SMALLINT         CHECK (sphere_id BETWEEN 1 AND 9),
    frequency_hz SMALLINT         NOT NULL,
    capabilities TEXT             NOT NULL DEFAULT '[]', -- JSON array, in the order given
    description  TEXT             NOT NULL DEFAULT '',
    type         TEXT             NOT NULL DEFAULT '',
    parent_id    TEXT COLLATE "C" REFERENCES agents (id),
    token_budget BIGINT,
    budget_scope TEXT             NOT NULL DEFAULT 'own' CHECK (budget_scope IN ('own', 'subtree')),
    is_active    BOOLEAN          NOT NULL DEFAULT TRUE,
    version      BIGINT           NOT NULL DEFAULT 1,
    created_at   BIGINT           NOT NULL,
    updated_at   BIGINT           NOT NULL,
    search_text  TEXT             NOT NULL, -- id, name and description in lower case
    CONSTRAINT agents_parent_by_level CHECK ((level = 0) = (parent_id IS NULL)),
    CONSTRAINT agents_sphere_by_level CHECK ((level = 0) = (sphere_id IS NULL)),
    CONSTRAINT agents_budget_by_level CHECK ((level = 0) = (token_budget IS NULL)),
    CONSTRAINT agents_frequency_by_level CHECK (
        (level = 0 AND frequency_hz = 999) OR (level = 1 AND frequency_hz = 888)
        OR (level = 2 AND frequency_hz IN (555, 666)) OR (level = 3 AND frequency_hz = 444))
);
CREATE UNIQUE INDEX agents_one_root ON agents (level) WHERE level = 0;
-- Each of these gives a page in id order under its first column, and a total for every combination
-- of the documented filters without reading the table.
CREATE INDEX agents_sphere ON agents (sphere_id, id, level, is_active, frequency_hz);
CREATE INDEX agents_level ON agents (level, id, is_active, frequency_hz);
CREATE INDEX agents_parent ON agents (parent_id, id, level, is_active, sphere_id, frequency_hz);
CREATE INDEX agents_inactive ON agents (id) WHERE NOT is_active;
CREATE INDEX agents_name ON agents (name, id);
CREATE INDEX agents_created ON agents (created_at, id);

CREATE TABLE agent_capabilities (
    capability TEXT COLLATE "C" NOT NULL, -- without its custom: prefix
    agent_id   TEXT COLLATE "C" NOT NULL REFERENCES agents (id),
    PRIMARY KEY (capability, agent_id)
);

CREATE TABLE audit (
    id         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    agent_id   TEXT COLLATE "C" NOT NULL,
    at         BIGINT           NOT NULL,
    actor      TEXT             NOT NULL,
    actor_id   TEXT             NOT NULL,
    action     TEXT             NOT NULL,
    request_id TEXT             NOT NULL,
    version    BIGINT           NOT NULL,
    changes    TEXT             NOT NULL, -- JSON
    reason     TEXT             NOT NULL DEFAULT ''
);
CREATE INDEX audit_agent ON audit (agent_id, id);

CREATE TABLE events (
    seq      BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- order of insertion
    id       TEXT   NOT NULL, -- UUIDv7
    position BIGINT, -- gapless, in commit order; NULL until numbered
    type     TEXT   NOT NULL,
    key      TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    data     TEXT   NOT NULL -- JSON
);
CREATE UNIQUE INDEX events_position ON events (position) WHERE position IS NOT NULL;
CREATE INDEX events_unnumbered ON events (seq) WHERE position IS NULL;
CREATE INDEX events_at ON events (at);
CREATE INDEX events_key ON events (key, seq);

-- The position of the newest numbered event.
CREATE TABLE event_head (
    id       SMALLINT PRIMARY KEY CHECK (id = 1),
    position BIGINT NOT NULL
);
INSERT INTO event_head (id, position) VALUES (1, 0);

CREATE TABLE jobs (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7
    kind       TEXT             NOT NULL,
    key        TEXT             NOT NULL DEFAULT '', -- unique within the kind unless ''
    payload    TEXT             NOT NULL,
    run_at     BIGINT           NOT NULL, -- due time; while claimed, the end of the lease
    lease      TEXT             NOT NULL DEFAULT '',
    attempt    BIGINT           NOT NULL DEFAULT 0,
    last_error TEXT             NOT NULL DEFAULT '',
    created_at BIGINT           NOT NULL
);
CREATE UNIQUE INDEX jobs_key ON jobs (kind, key) WHERE key <> '';
CREATE INDEX jobs_due ON jobs (run_at, id);

CREATE TABLE tokens (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    name       TEXT             NOT NULL,
    hash       BYTEA            NOT NULL UNIQUE, -- SHA-256 of the secret
    configured BYTEA, -- SHA-256 of the COMET_ADMIN_TOKEN it was last set from
    scopes     TEXT             NOT NULL, -- JSON array
    agent_id   TEXT COLLATE "C" REFERENCES agents (id),
    created_by TEXT             NOT NULL,
    created_at BIGINT           NOT NULL,
    rotated_at BIGINT,
    expires_at BIGINT,
    revoked_at BIGINT
);

-- Keys with which agents sign their messages.
CREATE TABLE agent_keys (
    agent_id   TEXT COLLATE "C" NOT NULL REFERENCES agents (id),
    algorithm  TEXT             NOT NULL CHECK (algorithm IN ('hmac-sha256', 'ed25519')),
    secret     TEXT             NOT NULL, -- of hmac-sha256: it computes signatures, so a hash of it would not do
    public_key TEXT             NOT NULL, -- of ed25519: 32 bytes in base64
    required   BOOLEAN          NOT NULL, -- every message of the agent must be signed
    created_at BIGINT           NOT NULL,
    created_by TEXT             NOT NULL,
    PRIMARY KEY (agent_id, algorithm)
);

-- Signed messages that were accepted, so that none is accepted twice.
CREATE TABLE replay_marks (
    scope    TEXT             NOT NULL, -- the protocol of the message
    agent_id TEXT COLLATE "C" NOT NULL,
    mark     BYTEA            NOT NULL, -- a digest of the signed message
    at       BIGINT           NOT NULL,
    PRIMARY KEY (scope, agent_id, mark)
);
CREATE INDEX replay_marks_at ON replay_marks (at);

-- Stored responses to requests with an Idempotency-Key.
CREATE TABLE idempotency (
    principal    TEXT   NOT NULL,
    key          TEXT   NOT NULL,
    request_hash BYTEA  NOT NULL,
    status       BIGINT NOT NULL DEFAULT 0,
    header       TEXT   NOT NULL DEFAULT '{}',
    body         BYTEA,
    created_at   BIGINT NOT NULL,
    PRIMARY KEY (principal, key)
);
CREATE INDEX idempotency_created ON idempotency (created_at);

-- +goose Down
DROP TABLE idempotency;
DROP TABLE replay_marks;
DROP TABLE agent_keys;
DROP TABLE tokens;
DROP TABLE jobs;
DROP TABLE event_head;
DROP TABLE events;
DROP TABLE audit;
DROP TABLE agent_capabilities;
DROP TABLE agents;
