-- Outcomes have one index, by agent and time, which also contains the columns for the statistics.
-- Purges find old events by their order of insertion.

-- +goose Up
DROP INDEX events_at;

CREATE TABLE agent_outcomes (
    agent_id    TEXT    NOT NULL REFERENCES agents (id),
    at          INTEGER NOT NULL,
    number      INTEGER NOT NULL, -- random; distinguishes outcomes of an agent with the same time
    session_id  TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('success', 'failed', 'timeout', 'cancelled')),
    duration_ms INTEGER CHECK (duration_ms >= 0), -- NULL where it was not measured
    PRIMARY KEY (agent_id, at, number)
) STRICT, WITHOUT ROWID;
INSERT INTO agent_outcomes (agent_id, at, number, session_id, status, duration_ms)
    SELECT agent_id, at, row_number() OVER (ORDER BY agent_id, at), session_id, status, duration_ms FROM outcomes
    ORDER BY agent_id, at;
DROP TABLE outcomes;
ALTER TABLE agent_outcomes RENAME TO outcomes;

-- +goose Down
-- The earlier program cannot read decisions in the new form.
UPDATE tasks SET decision = '' WHERE decision LIKE '%:[[%';
CREATE TABLE former_outcomes (
    id          TEXT    NOT NULL PRIMARY KEY, -- random in restored rows
    agent_id    TEXT    NOT NULL REFERENCES agents (id),
    session_id  TEXT    NOT NULL,
    status      TEXT    NOT NULL CHECK (status IN ('success', 'failed', 'timeout', 'cancelled')),
    duration_ms INTEGER CHECK (duration_ms >= 0), -- NULL where it was not measured
    at          INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO former_outcomes (id, agent_id, session_id, status, duration_ms, at)
    SELECT lower(hex(randomblob(16))), agent_id, session_id, status, duration_ms, at FROM outcomes;
DROP TABLE outcomes;
ALTER TABLE former_outcomes RENAME TO outcomes;
CREATE INDEX outcomes_agent ON outcomes (agent_id, at, session_id, status, duration_ms);
CREATE INDEX events_at ON events (at);
