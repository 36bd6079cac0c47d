-- Outcomes have one index, by agent and time, which also contains the columns for the statistics.
-- Purges find old events by their order of insertion.

-- +goose Up
DROP INDEX outcomes_agent;
ALTER TABLE outcomes DROP COLUMN id; -- with its primary key
ALTER TABLE outcomes ADD COLUMN number BIGINT GENERATED ALWAYS AS IDENTITY;
ALTER TABLE outcomes ALTER COLUMN number DROP IDENTITY; -- random from now on; distinguishes outcomes of an agent with the same time
ALTER TABLE outcomes ADD PRIMARY KEY (agent_id, at, number) INCLUDE (session_id, status, duration_ms);
DROP INDEX events_at;

-- +goose Down
-- The earlier program cannot read decisions in the new form.
UPDATE tasks SET decision = '' WHERE decision LIKE '%:[[%';
ALTER TABLE outcomes ADD COLUMN id TEXT COLLATE "C";
UPDATE outcomes SET id = gen_random_uuid();
ALTER TABLE outcomes DROP COLUMN number; -- with its primary key
ALTER TABLE outcomes ADD PRIMARY KEY (id);
CREATE INDEX outcomes_agent ON outcomes (agent_id, at, session_id, status, duration_ms);
CREATE INDEX events_at ON events (at);
