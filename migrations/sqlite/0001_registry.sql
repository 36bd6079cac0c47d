-- The registry of agents, its audit log, events, jobs and tokens (CHE·NU). Every time is UTC in
-- whole microseconds since 1970, so both databases sort and compare it alike.

-- +goose Up
CREATE TABLE agents (
    id           TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    level        INTEGER NOT NULL CHECK (level BETWEEN 0 AND 3),
    sphere_id    INTEGER CHECK (sphere_id BETWEEN 1 AND 9),
    frequency_hz INTEGER NOT NULL,
    capabilities TEXT    NOT NULL DEFAULT '[]', -- JSON array, in the order given
    description  TEXT    NOT NULL DEFAULT '',
    type         TEXT    NOT NULL DEFAULT '',
    parent_id    TEXT    REFERENCES agents (id),
    token_budget INTEGER,
    budget_scope TEXT    NOT NULL DEFAULT 'own' CHECK (budget_scope IN ('own', 'subtree')),
    is_active    INTEGER NOT NULL DEFAULT 1 CHECK (is_active IN (0, 1)),
    version      INTEGER NOT NULL DEFAULT 1,
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    search_text  TEXT    NOT NULL, -- id, name and description in lower case
    CONSTRAINT agents_parent_by_level CHECK ((level = 0) = (parent_id IS NULL)),
    CONSTRAINT agents_sphere_by_level CHECK ((level = 0) = (sphere_id IS NULL)),
    CONSTRAINT agents_budget_by_level CHECK ((level = 0) = (token_budget IS NULL)),
    CONSTRAINT agents_frequency_by_level CHECK (
        (level = 0 AND frequency_hz = 999) OR (level = 1 AND frequency_hz = 888)
        OR (level = 2 AND frequency_hz IN (555, 666)) OR (level = 3 AND frequency_hz = 444))
) STRICT;
CREATE UNIQUE INDEX agents_one_root ON agents (level) WHERE level = 0;
-- Each of these gives a page in id order under its first column, and a total for every combination
-- of the documented filters without reading the table.
CREATE INDEX agents_sphere ON agents (sphere_id, id, level, is_active, frequency_hz);
CREATE INDEX agents_level ON agents (level, id, is_active, frequency_hz);
CREATE INDEX agents_parent ON agents (parent_id, id, level, is_active, sphere_id, frequency_hz);
CREATE INDEX agents_inactive ON agents (id) WHERE is_active = 0;
CREATE INDEX agents_name ON agents (name, id);
CREATE INDEX agents_created ON agents (created_at, id);

CREATE TABLE agent_capabilities (
    capability TEXT NOT NULL, -- without its custom: prefix
    agent_id   TEXT NOT NULL REFERENCES agents (id),
    PRIMARY KEY (capability, agent_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    agent_id   TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    actor      TEXT    NOT NULL,
    actor_id   TEXT    NOT NULL,
    action     TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    changes    TEXT    NOT NULL, -- JSON
    reason     TEXT    NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX audit_agent ON audit (agent_id, id);

CREATE TABLE events (
    seq      INTEGER PRIMARY KEY, -- order of insertion
    id       TEXT    NOT NULL, -- UUIDv7
    position INTEGER, -- gapless, in commit order; NULL until numbered
    type     TEXT    NOT NULL,
    key      TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    data     TEXT    NOT NULL -- JSON
) STRICT;
CREATE UNIQUE INDEX events_position ON events (position) WHERE position IS NOT NULL;
CREATE INDEX events_unnumbered ON events (seq) WHERE position IS NULL;
CREATE INDEX events_at ON events (at);
CREATE INDEX events_key ON events (key, seq);

-- The position of the newest numbered event.
CREATE TABLE event_head (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    position INTEGER NOT NULL
) STRICT;
INSERT INTO event_head (id, position) VALUES (1, 0);

CREATE TABLE jobs (
    id         TEXT    NOT NULL PRIMARY KEY, -- UUIDv7
    kind       TEXT    NOT NULL,
    key        TEXT    NOT NULL DEFAULT '', -- unique within the kind unless ''
    payload    TEXT    NOT NULL,
    run_at     INTEGER NOT NULL, -- due time; while claimed, the end of the lease
    lease      TEXT    NOT NULL DEFAULT '',
    attempt    INTEGER NOT NULL DEFAULT 0,
    last_error TEXT    NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX jobs_key ON jobs (kind, key) WHERE key <> '';
CREATE INDEX jobs_due ON jobs (run_at, id);

CREATE TABLE tokens (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    NOT NULL,
    hash       BLOB    NOT NULL UNIQUE, -- SHA-256 of the secret
    configured BLOB, -- SHA-256 of the COMET_ADMIN_TOKEN it was last set from
    scopes     TEXT    NOT NULL, -- JSON array
    agent_id   TEXT    REFERENCES agents (id),
    created_by TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    rotated_at INTEGER,
    expires_at INTEGER,
    revoked_at INTEGER
) STRICT;

-- Keys with which agents sign their messages.
CREATE TABLE agent_keys (
    agent_id   TEXT    NOT NULL REFERENCES agents (id),
    algorithm  TEXT    NOT NULL CHECK (algorithm IN ('hmac-sha256', 'ed25519')),
    secret     TEXT    NOT NULL, -- of hmac-sha256: it computes signatures, so a hash of it would not do
    public_key TEXT    NOT NULL, -- of ed25519: 32 bytes in base64
    required   INTEGER NOT NULL, -- every message of the agent must be signed
    created_at INTEGER NOT NULL,
    created_by TEXT    NOT NULL,
    PRIMARY KEY (agent_id, algorithm)
) STRICT, WITHOUT ROWID;

-- Signed messages that were accepted, so that none is accepted twice.
CREATE TABLE replay_marks (
    scope    TEXT    NOT NULL, -- the protocol of the message
    agent_id TEXT    NOT NULL,
    mark     BLOB    NOT NULL, -- a digest of the signed message
    at       INTEGER NOT NULL,
    PRIMARY KEY (scope, agent_id, mark)
) STRICT, WITHOUT ROWID;
CREATE INDEX replay_marks_at ON replay_marks (at);

-- Stored responses to requests with an Idempotency-Key.
CREATE TABLE idempotency (
    principal    TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    request_hash BLOB    NOT NULL,
    status       INTEGER NOT NULL DEFAULT 0,
    header       TEXT    NOT NULL DEFAULT '{}',
    body         BLOB,
    created_at   INTEGER NOT NULL,
    PRIMARY KEY (principal, key)
) STRICT;
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
