-- Events get their position when they are inserted: the order of insertion of the only writer is
-- the order of commits.

-- +goose Up
-- The webhook deliveries of the events up to this position are written.
ALTER TABLE event_head ADD COLUMN delivered INTEGER NOT NULL DEFAULT 0;
UPDATE event_head SET delivered = position;
UPDATE events SET position = (SELECT position FROM event_head) + numbered.n FROM
    (SELECT seq, row_number() OVER (ORDER BY seq) AS n FROM events WHERE position IS NULL) AS numbered
    WHERE events.seq = numbered.seq;
UPDATE event_head SET position = max(position, (SELECT coalesce(max(position), 0) FROM events));

-- +goose Down
UPDATE event_head SET position = max(position, (SELECT coalesce(max(position), 0) FROM events));
ALTER TABLE event_head DROP COLUMN delivered;
