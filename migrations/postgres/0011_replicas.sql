-- The processes that use the database. A process increments its heartbeats every second. If
-- their number does not change it has died, and the others release its leases and its connections.

-- +goose Up
CREATE TABLE replicas (
    id         TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- webhooks.lease_owner; jobs.lease and workers.connection_id begin with it
    heartbeats BIGINT           NOT NULL
);

-- +goose Down
DROP TABLE replicas;
