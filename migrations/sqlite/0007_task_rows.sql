-- A task is one row: with its input, the request that made it, its newest attempt, the message that
-- assigns it and a short result.

-- +goose Up
ALTER TABLE tasks ADD COLUMN capabilities TEXT NOT NULL DEFAULT '[]'; -- JSON array of required capabilities
ALTER TABLE tasks ADD COLUMN agent_type TEXT NOT NULL DEFAULT ''; -- '' for any
ALTER TABLE tasks ADD COLUMN sphere_id INTEGER NOT NULL DEFAULT 0; -- 0 for any
ALTER TABLE tasks ADD COLUMN requested_agent_id TEXT NOT NULL DEFAULT ''; -- '' for any
ALTER TABLE tasks ADD COLUMN parameters TEXT NOT NULL DEFAULT ''; -- JSON object; '' if it is long: in task_inputs
ALTER TABLE tasks ADD COLUMN policy TEXT NOT NULL DEFAULT '{}'; -- JSON: what the requester set differently from the class
ALTER TABLE tasks ADD COLUMN meta TEXT NOT NULL DEFAULT ''; -- JSON: what the requester's protocol must return; in task_inputs with long parameters
ALTER TABLE tasks ADD COLUMN trace TEXT NOT NULL DEFAULT ''; -- W3C traceparent, '' for none
ALTER TABLE tasks ADD COLUMN request_key BLOB; -- hash of the requester and the request id; NULL without one
ALTER TABLE tasks ADD COLUMN request_digest BLOB; -- SHA-256 of the request
ALTER TABLE tasks ADD COLUMN subtasks INTEGER NOT NULL DEFAULT 0; -- handed off from it, or its parts
ALTER TABLE tasks ADD COLUMN output BLOB; -- a short result; NULL if there is none, or if it is in task_outputs
ALTER TABLE tasks ADD COLUMN message_id TEXT NOT NULL DEFAULT ''; -- assigns the newest attempt; '' once it is acknowledged
-- The newest attempt. It ends with the task; one that is followed by another is in attempts.
ALTER TABLE tasks ADD COLUMN attempt_state INTEGER NOT NULL DEFAULT 6 CHECK (attempt_state BETWEEN 0 AND 6); -- assigned, running, succeeded, failed, timed out, cancelled, none
ALTER TABLE tasks ADD COLUMN reservation_id TEXT NOT NULL DEFAULT ''; -- '' without a budget
ALTER TABLE tasks ADD COLUMN attempt_tokens INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN assigned_at INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN accepted_at INTEGER;
ALTER TABLE tasks ADD COLUMN chunk_step INTEGER NOT NULL DEFAULT 0; -- the step of an output in chunks
ALTER TABLE tasks ADD COLUMN chunk_total INTEGER NOT NULL DEFAULT 0; -- the announced length of that output, 0 for none

UPDATE tasks SET (capabilities, agent_type, sphere_id, requested_agent_id, policy, trace) =
    (SELECT capabilities, agent_type, sphere_id, requested_agent_id, policy, trace FROM task_inputs WHERE task_id = tasks.id);
UPDATE tasks SET (parameters, meta) = (SELECT parameters, meta FROM task_inputs WHERE task_id = tasks.id)
    WHERE id IN (SELECT task_id FROM task_inputs WHERE length(CAST(parameters AS BLOB)) + length(CAST(meta AS BLOB)) <= 4096);
UPDATE tasks SET (attempt_state, reservation_id, attempt_tokens, assigned_at, accepted_at, chunk_step, chunk_total) =
    (SELECT state, reservation_id, tokens, assigned_at, accepted_at, chunk_step, chunk_total FROM attempts AS a WHERE a.task_id = tasks.id AND a.attempt = tasks.attempt)
    WHERE EXISTS (SELECT 1 FROM attempts AS a WHERE a.task_id = tasks.id AND a.attempt = tasks.attempt AND a.agent_id = tasks.agent_id AND
        (tasks.state < 2 AND tasks.waiting_for IN (0, 3) OR tasks.state >= 2 AND a.error_code = tasks.error_code AND a.ended_at IS NOT NULL));
UPDATE tasks SET message_id = coalesce((SELECT i.id FROM inbox AS i WHERE i.task_id = tasks.id AND i.attempt = tasks.attempt AND i.agent_id = tasks.agent_id AND i.kind = 'assign'), '')
    WHERE attempt_state < 2;
UPDATE tasks SET (request_key, request_digest) = (SELECT substr(sha256(r.owner || '/' || r.request_id), 1, 16), r.digest FROM task_requests AS r WHERE r.task_id = tasks.id LIMIT 1)
    WHERE id IN (SELECT task_id FROM task_requests);
UPDATE tasks SET subtasks = (SELECT count(*) FROM tasks AS c WHERE c.parent_id = tasks.id) WHERE id IN (SELECT parent_id FROM tasks WHERE parent_id IS NOT NULL);
DELETE FROM attempts WHERE EXISTS (SELECT 1 FROM tasks WHERE tasks.id = attempts.task_id AND tasks.attempt = attempts.attempt AND tasks.attempt_state < 6);
DELETE FROM task_inputs WHERE task_id IN (SELECT id FROM tasks WHERE parameters <> '');
DELETE FROM inbox WHERE kind = 'assign';
DELETE FROM jobs WHERE kind = 'task.timer'; -- tasks_deadline replaces it

DROP TABLE task_requests;
ALTER TABLE task_inputs DROP COLUMN capabilities;
ALTER TABLE task_inputs DROP COLUMN agent_type;
ALTER TABLE task_inputs DROP COLUMN sphere_id;
ALTER TABLE task_inputs DROP COLUMN requested_agent_id;
ALTER TABLE task_inputs DROP COLUMN policy;
ALTER TABLE task_inputs DROP COLUMN trace;
DROP INDEX tasks_open;
DROP INDEX tasks_ended;
CREATE UNIQUE INDEX tasks_request ON tasks (request_key) WHERE request_key IS NOT NULL;
CREATE INDEX tasks_deadline ON tasks (deadline) WHERE state < 2;
CREATE INDEX tasks_working ON tasks (agent_id) WHERE state < 2 AND waiting_for IN (0, 3);
CREATE INDEX tasks_inbox ON tasks (agent_id, message_id) WHERE message_id <> '';

-- +goose Down
-- The ids of earlier requests are lost: only their hashes are stored.
CREATE TABLE task_requests (
    owner      TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    digest     BLOB    NOT NULL,
    task_id    TEXT    NOT NULL REFERENCES tasks (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (owner, request_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX task_requests_task ON task_requests (task_id);
CREATE INDEX task_requests_created ON task_requests (created_at);
ALTER TABLE task_inputs ADD COLUMN capabilities TEXT NOT NULL DEFAULT '[]';
ALTER TABLE task_inputs ADD COLUMN agent_type TEXT NOT NULL DEFAULT '';
ALTER TABLE task_inputs ADD COLUMN sphere_id INTEGER NOT NULL DEFAULT 0;
ALTER TABLE task_inputs ADD COLUMN requested_agent_id TEXT NOT NULL DEFAULT '';
ALTER TABLE task_inputs ADD COLUMN policy TEXT NOT NULL DEFAULT '{}';
ALTER TABLE task_inputs ADD COLUMN trace TEXT NOT NULL DEFAULT '';
INSERT INTO task_inputs (task_id, parameters, meta) SELECT id, parameters, meta FROM tasks WHERE parameters <> '';
UPDATE task_inputs SET (capabilities, agent_type, sphere_id, requested_agent_id, policy, trace) =
    (SELECT capabilities, agent_type, sphere_id, requested_agent_id, policy, trace FROM tasks WHERE id = task_inputs.task_id);
INSERT INTO attempts (task_id, attempt, agent_id, state, reservation_id, tokens, error_code, error, assigned_at, accepted_at, ended_at, chunk_step, chunk_total)
    SELECT id, attempt, agent_id, attempt_state, reservation_id, attempt_tokens, error_code, error, assigned_at, accepted_at, ended_at, chunk_step, chunk_total
    FROM tasks WHERE attempt_state < 6;
INSERT INTO inbox (agent_id, id, kind, priority, task_id, attempt, data, created_at)
    SELECT agent_id, message_id, 'assign', priority, id, attempt, '', assigned_at FROM tasks WHERE message_id <> '';
INSERT INTO task_outputs (task_id, attempt, stream, start, data) SELECT id, attempt, 0, 0, output FROM tasks WHERE output IS NOT NULL;
INSERT INTO jobs (id, kind, key, payload, run_at, created_at) SELECT id, 'task.timer', id, '', deadline, updated_at FROM tasks WHERE state < 2;
DROP INDEX tasks_inbox;
DROP INDEX tasks_working;
DROP INDEX tasks_deadline;
DROP INDEX tasks_request;
CREATE INDEX tasks_open ON tasks (created_at, id) WHERE state < 2;
CREATE INDEX tasks_ended ON tasks (ended_at) WHERE state >= 2;
ALTER TABLE tasks DROP COLUMN chunk_total;
ALTER TABLE tasks DROP COLUMN chunk_step;
ALTER TABLE tasks DROP COLUMN accepted_at;
ALTER TABLE tasks DROP COLUMN assigned_at;
ALTER TABLE tasks DROP COLUMN attempt_tokens;
ALTER TABLE tasks DROP COLUMN reservation_id;
ALTER TABLE tasks DROP COLUMN attempt_state;
ALTER TABLE tasks DROP COLUMN message_id;
ALTER TABLE tasks DROP COLUMN output;
ALTER TABLE tasks DROP COLUMN subtasks;
ALTER TABLE tasks DROP COLUMN request_digest;
ALTER TABLE tasks DROP COLUMN request_key;
ALTER TABLE tasks DROP COLUMN trace;
ALTER TABLE tasks DROP COLUMN meta;
ALTER TABLE tasks DROP COLUMN policy;
ALTER TABLE tasks DROP COLUMN parameters;
ALTER TABLE tasks DROP COLUMN requested_agent_id;
ALTER TABLE tasks DROP COLUMN sphere_id;
ALTER TABLE tasks DROP COLUMN agent_type;
ALTER TABLE tasks DROP COLUMN capabilities;
