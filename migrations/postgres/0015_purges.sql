-- The verification of the ledger compares events and deliveries that no purge has deleted.

-- +goose Up
CREATE TABLE purges (
    kind   TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- events, deliveries
    cutoff BIGINT           NOT NULL -- older rows may have been deleted
);
-- Earlier purges are not recorded.
INSERT INTO purges (kind, cutoff) SELECT kind, (extract(epoch FROM now()) * 1000000)::bigint FROM event_head
    CROSS JOIN (SELECT 'events' AS kind UNION ALL SELECT 'deliveries') AS kinds WHERE position > 0;

-- +goose Down
DROP TABLE purges;
