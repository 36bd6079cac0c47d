-- The verification of the ledger compares events and deliveries that no purge has deleted.

-- +goose Up
CREATE TABLE purges (
    kind   TEXT    NOT NULL PRIMARY KEY, -- events, deliveries
    cutoff INTEGER NOT NULL -- older rows may have been deleted
) STRICT, WITHOUT ROWID;
-- Earlier purges are not recorded.
INSERT INTO purges (kind, cutoff) SELECT kind, CAST(unixepoch('subsec') * 1000000 AS INTEGER) FROM event_head
    CROSS JOIN (SELECT 'events' AS kind UNION ALL SELECT 'deliveries') AS kinds WHERE position > 0;

-- +goose Down
DROP TABLE purges;
