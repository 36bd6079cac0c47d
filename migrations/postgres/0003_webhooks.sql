-- Webhooks and their deliveries (CHE·NU §9).

-- +goose Up
CREATE TABLE webhooks (
    id              TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- UUIDv7
    url             TEXT             NOT NULL,
    description     TEXT             NOT NULL,
    events          TEXT             NOT NULL, -- JSON array
    agent_id        TEXT COLLATE "C" REFERENCES agents (id), -- NULL receives events of every agent
    subtree         BOOLEAN          NOT NULL, -- includes the agents below agent_id
    ordering        TEXT             NOT NULL CHECK (ordering IN ('none', 'agent')),
    enabled         BOOLEAN          NOT NULL,
    disabled_reason TEXT             NOT NULL DEFAULT '',
    disabled_at     BIGINT,
    failing_since   BIGINT, -- the first failure after the last success
    failures        BIGINT           NOT NULL DEFAULT 0, -- since then, the first few only
    secret          BYTEA            NOT NULL, -- it computes signatures, so a hash of it would not do
    signing_key     BYTEA, -- Ed25519 seed; NULL signs with the secret only
    old_secret      BYTEA, -- signs too until old_until
    old_signing_key BYTEA,
    old_until       BIGINT           NOT NULL DEFAULT 0,
    lease_owner     TEXT             NOT NULL DEFAULT '', -- the replica that delivers
    lease_until     BIGINT           NOT NULL DEFAULT 0,
    created_by      TEXT             NOT NULL,
    created_at      BIGINT           NOT NULL,
    updated_at      BIGINT           NOT NULL
);

CREATE TABLE deliveries (
    webhook_id TEXT COLLATE "C" NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    id         TEXT COLLATE "C" NOT NULL, -- UUIDv7 of created_at, in the order of position
    event_id   TEXT COLLATE "C" NOT NULL,
    position   BIGINT           NOT NULL, -- of the event; 0 for a test
    type       TEXT             NOT NULL,
    key        TEXT COLLATE "C" NOT NULL,
    event_at   BIGINT           NOT NULL,
    data       TEXT             NOT NULL,
    state      SMALLINT         NOT NULL CHECK (state BETWEEN 0 AND 3), -- queued behind another of its key, ready, succeeded, dead
    ordered    SMALLINT         NOT NULL DEFAULT 0 CHECK (ordered IN (0, 1)), -- deliveries of its key are sent one after the other
    due        BIGINT           NOT NULL, -- the next attempt while unfinished, then the end
    attempts   BIGINT           NOT NULL DEFAULT 0, -- all of them
    tries      BIGINT           NOT NULL DEFAULT 0, -- since creation or the last redelivery
    created_at BIGINT           NOT NULL,
    -- The newest attempt; most deliveries have only one.
    last_at       BIGINT           NOT NULL DEFAULT 0,
    last_ms       BIGINT           NOT NULL DEFAULT 0, -- duration
    last_status   BIGINT           NOT NULL DEFAULT 0, -- of the response; 0 for none
    last_error    TEXT             NOT NULL DEFAULT '', -- '' for a success
    last_response TEXT             NOT NULL DEFAULT '', -- the beginning of the body
    PRIMARY KEY (webhook_id, id)
);
CREATE UNIQUE INDEX deliveries_event ON deliveries (event_id, webhook_id);
CREATE INDEX deliveries_due ON deliveries (webhook_id, due, position) WHERE state = 1;
CREATE INDEX deliveries_ordered ON deliveries (webhook_id, key, position) WHERE state < 2 AND ordered = 1;
CREATE INDEX deliveries_dead ON deliveries (webhook_id, id) WHERE state = 3;

-- The attempts before the newest.
CREATE TABLE delivery_attempts (
    webhook_id  TEXT COLLATE "C" NOT NULL,
    delivery_id TEXT COLLATE "C" NOT NULL,
    attempt     BIGINT           NOT NULL, -- from 1
    at          BIGINT           NOT NULL,
    duration_ms BIGINT           NOT NULL,
    status      BIGINT           NOT NULL,
    error       TEXT             NOT NULL,
    response    TEXT             NOT NULL,
    PRIMARY KEY (webhook_id, delivery_id, attempt),
    FOREIGN KEY (webhook_id, delivery_id) REFERENCES deliveries (webhook_id, id) ON DELETE CASCADE
);

-- +goose Down
DROP TABLE delivery_attempts;
DROP TABLE deliveries;
DROP TABLE webhooks;
