-- Budgets, approvers and the size of results of workflows.

-- +goose Up
ALTER TABLE workflows ADD COLUMN budget INTEGER NOT NULL DEFAULT 0; -- tokens, 0 for no limit
ALTER TABLE workflows ADD COLUMN used INTEGER NOT NULL DEFAULT 0; -- tokens of its steps
ALTER TABLE workflows ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0; -- the rest of its reservation
ALTER TABLE workflows ADD COLUMN reservation_id TEXT NOT NULL DEFAULT ''; -- of the payer, '' for none
ALTER TABLE workflows ADD COLUMN result_bytes INTEGER NOT NULL DEFAULT 0; -- of all results
ALTER TABLE workflows ADD COLUMN approver TEXT NOT NULL DEFAULT ''; -- who approves: '' for the owner, other, human
ALTER TABLE workflow_steps ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0; -- of all attempts, if the workflow has a budget
ALTER TABLE checkpoints ADD COLUMN via TEXT NOT NULL DEFAULT ''; -- how it was decided: '' for a token, elicitation
CREATE INDEX workflows_approvals ON workflows (id) WHERE state = 1 AND approver <> '';

-- +goose Down
DROP INDEX workflows_approvals;
ALTER TABLE checkpoints DROP COLUMN via;
ALTER TABLE workflow_steps DROP COLUMN tokens;
ALTER TABLE workflows DROP COLUMN approver;
ALTER TABLE workflows DROP COLUMN result_bytes;
ALTER TABLE workflows DROP COLUMN reservation_id;
ALTER TABLE workflows DROP COLUMN reserved;
ALTER TABLE workflows DROP COLUMN used;
ALTER TABLE workflows DROP COLUMN budget;
