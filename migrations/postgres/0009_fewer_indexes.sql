-- The outcomes of an agent are stored in the order in which they are counted. Old events are found
-- by their order of insertion.

-- +goose Up
DROP INDEX events_at;
ALTER TABLE outcomes ADD COLUMN number BIGINT; -- random: an agent may have several at one time
UPDATE outcomes SET number = numbered.n FROM (SELECT id, row_number() OVER (ORDER BY id) AS n FROM outcomes) AS numbered
    WHERE outcomes.id = numbered.id;
ALTER TABLE outcomes DROP COLUMN id; -- with its primary key
ALTER TABLE outcomes ADD PRIMARY KEY (agent_id, at, number) INCLUDE (session_id, status, duration_ms);
DROP INDEX outcomes_agent;

-- +goose Down
ALTER TABLE outcomes ADD COLUMN id TEXT COLLATE "C";
UPDATE outcomes SET id = gen_random_uuid();
ALTER TABLE outcomes DROP COLUMN number; -- with its primary key
ALTER TABLE outcomes ADD PRIMARY KEY (id);
CREATE INDEX outcomes_agent ON outcomes (agent_id, at, session_id, status, duration_ms);
CREATE INDEX events_at ON events (at);
