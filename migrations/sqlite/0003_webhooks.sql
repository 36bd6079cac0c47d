-- Webhooks and their deliveries (CHE·NU §9).

-- +goose Up
CREATE TABLE webhooks (
    id              TEXT    NOT NULL PRIMARY KEY, -- UUIDv7
    url             TEXT    NOT NULL,
    description     TEXT    NOT NULL,
    events          TEXT    NOT NULL, -- JSON array
    agent_id        TEXT    REFERENCES agents (id), -- NULL receives events of every agent
    subtree         INTEGER NOT NULL CHECK (subtree IN (0, 1)), -- includes the agents below agent_id
    ordering        TEXT    NOT NULL CHECK (ordering IN ('none', 'agent')),
    enabled         INTEGER NOT NULL CHECK (enabled IN (0, 1)),
    disabled_reason TEXT    NOT NULL DEFAULT '',
    disabled_at     INTEGER,
    failing_since   INTEGER, -- the first failure after the last success
    failures        INTEGER NOT NULL DEFAULT 0, -- since then, the first few only
    secret          BLOB    NOT NULL, -- it computes signatures, so a hash of it would not do
    signing_key     BLOB, -- Ed25519 seed; NULL signs with the secret only
    old_secret      BLOB, -- signs too until old_until
    old_signing_key BLOB,
    old_until       INTEGER NOT NULL DEFAULT 0,
    lease_owner     TEXT    NOT NULL DEFAULT '', -- the replica that delivers
    lease_until     INTEGER NOT NULL DEFAULT 0,
    created_by      TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
) STRICT;

CREATE TABLE deliveries (
    webhook_id TEXT    NOT NULL REFERENCES webhooks (id) ON DELETE CASCADE,
    id         TEXT    NOT NULL, -- UUIDv7 of created_at, in the order of position
    event_id   TEXT    NOT NULL,
    position   INTEGER NOT NULL, -- of the event; 0 for a test
    type       TEXT    NOT NULL,
    key        TEXT    NOT NULL,
    event_at   INTEGER NOT NULL,
    data       TEXT    NOT NULL,
    state      INTEGER NOT NULL CHECK (state BETWEEN 0 AND 3), -- queued behind another of its key, ready, succeeded, dead
    ordered    INTEGER NOT NULL DEFAULT 0 CHECK (ordered IN (0, 1)), -- deliveries of its key are sent one after the other
    due        INTEGER NOT NULL, -- the next attempt while unfinished, then the end
    attempts   INTEGER NOT NULL DEFAULT 0, -- all of them
    tries      INTEGER NOT NULL DEFAULT 0, -- since creation or the last redelivery
    created_at INTEGER NOT NULL,
    -- The newest attempt; most deliveries have only one.
    last_at       INTEGER NOT NULL DEFAULT 0,
    last_ms       INTEGER NOT NULL DEFAULT 0, -- duration
    last_status   INTEGER NOT NULL DEFAULT 0, -- of the response; 0 for none
    last_error    TEXT    NOT NULL DEFAULT '', -- '' for a success
    last_response TEXT    NOT NULL DEFAULT '', -- the beginning of the body
    PRIMARY KEY (webhook_id, id)
) STRICT;
CREATE UNIQUE INDEX deliveries_event ON deliveries (event_id, webhook_id);
CREATE INDEX deliveries_due ON deliveries (webhook_id, due, position) WHERE state = 1;
CREATE INDEX deliveries_ordered ON deliveries (webhook_id, key, position) WHERE state < 2 AND ordered = 1;
CREATE INDEX deliveries_dead ON deliveries (webhook_id, id) WHERE state = 3;

-- The attempts before the newest.
CREATE TABLE delivery_attempts (
    webhook_id  TEXT    NOT NULL,
    delivery_id TEXT    NOT NULL,
    attempt     INTEGER NOT NULL, -- from 1
    at          INTEGER NOT NULL,
    duration_ms INTEGER NOT NULL,
    status      INTEGER NOT NULL,
    error       TEXT    NOT NULL,
    response    TEXT    NOT NULL,
    PRIMARY KEY (webhook_id, delivery_id, attempt),
    FOREIGN KEY (webhook_id, delivery_id) REFERENCES deliveries (webhook_id, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;

-- +goose Down
DROP TABLE delivery_attempts;
DROP TABLE deliveries;
DROP TABLE webhooks;
