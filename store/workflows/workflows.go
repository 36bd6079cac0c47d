// Package workflows has the statements on durable workflows, their steps and their checkpoints.
package workflows

import (
	"crypto/subtle"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/store"
	"comet/store/columns"
	"comet/store/filter"
)

// Values of Workflow.State.
const (
	Running = iota
	Paused
	Complete
	Aborted
	Failed
)

// Workflow is a row of workflows.
type Workflow struct {
	// ID is "wf_" and a UUIDv7 in base 32.
	ID string
	// TokenID and Actor are the id and the name of the owner's token. Payer is the agent that is charged.
	TokenID, Actor, Payer string
	// Source is the API that started it; Session and TraceID are those of its request, "" for none.
	Source, Session string
	TraceID         string
	Options         json.RawMessage
	// Definition and DefinitionVersion name the stored workflow that it executes, "" for none; Input is its input.
	Definition        string
	DefinitionVersion int64
	Input             json.RawMessage
	State             int
	// Pause is the reason why it is paused, "" if it is not.
	Pause string
	// Confirmed is the number of confirmed layers, and Revision how many times steps were added.
	Confirmed, Revision int
	// Holder is the process that runs it, "" for none.
	Holder string
	// Budget is the number of tokens that its steps may use, 0 for no limit. Used is what they have used, and Reserved what
	// is left of ReservationID, a reservation of the payer; both are 0 without a budget.
	Budget, Used, Reserved int64
	ReservationID          string
	// ResultBytes is the size of all results.
	ResultBytes int64
	// Approver says who approves steps, "" for the owner.
	Approver string
	// ErrorCode and Reason say why it has ended, "" if all steps did.
	ErrorCode, Reason    string
	Version              int64
	CreatedAt, UpdatedAt time.Time
	// EndedAt is zero until it has ended.
	EndedAt time.Time
}

// TableName implements gorm's schema.Tabler.
func (Workflow) TableName() string { return "workflows" }

// Step is a row of workflow_steps.
type Step struct {
	WorkflowID string
	// Position is the index of the step in the request.
	Position   int
	Definition json.RawMessage
	// FirstLayer is the lowest layer of a step that was added later, 0 for any.
	FirstLayer int
	// State is a plan.State.
	State   int
	Attempt int
	// Repeatable reports whether the running attempt may run again when its result is lost.
	Repeatable bool
	// Approved is the digest that was approved, "" for none. TaskID is the task of an agent step.
	Approved, TaskID string
	ErrorCode, Error string
	// StartedAt and EndedAt are zero until the step has started and ended.
	StartedAt, EndedAt time.Time
	// Tokens are those of all attempts, 0 without a budget of the workflow.
	Tokens int64
	// Result is JSON, nil without one.
	Result json.RawMessage
}

// TableName implements gorm's schema.Tabler.
func (Step) TableName() string { return "workflow_steps" }

// Checkpoint is a row of checkpoints: what a pause asks, and the decision.
type Checkpoint struct {
	// ID is "cp_" and a UUIDv7 in base 32.
	ID, WorkflowID, Kind string
	// Layer is the completed layer, 0 for other kinds.
	Layer int
	// Shown is JSON, and Digest its digest.
	Shown  json.RawMessage
	Digest string
	// State is one of the constants below.
	State string
	// DecidedBy is the id of the token, "" for none, and Via how it has decided, "" for a request. Resolution is what
	// happened to uncertain steps, "" for none.
	DecidedBy, Via, Feedback, Resolution string

	CreatedAt time.Time
	// DecidedAt is zero while the checkpoint is open.
	DecidedAt, ExpiresAt time.Time
}

// Values of Checkpoint.State.
const (
	Open     = "open"
	Approved = "approved"
	Rejected = "rejected"
	Stale    = "stale" // what was shown has changed
	Expired  = "expired"
)

// TableName implements gorm's schema.Tabler.
func (Checkpoint) TableName() string { return "checkpoints" }

// ErrFenced says that the workflow is no longer in the state that the caller knows: another process has changed it.
var ErrFenced = errors.New("another process has changed the workflow")

// Create stores a workflow and its steps.
func Create(tx *store.Tx, w Workflow, steps []Step) error {
	if err := store.Insert(tx, "", w); err != nil {
		return err
	}
	return store.Insert(tx, "", steps...)
}

// AddCheckpoint stores an open checkpoint.
func AddCheckpoint(tx *store.Tx, c Checkpoint) error { return store.Insert(tx, "", c) }

// Get returns a workflow, or errs.NotFound.
func Get(from store.Source, id string) (Workflow, error) {
	return store.Row[Workflow](from, "SELECT "+workflowColumns+" FROM workflows WHERE id = ?", id)
}

const workflowColumns = "id, token_id, actor, payer, source, session, trace_id, options, definition, definition_version, input, state, pause, confirmed, revision, holder, budget, used, reserved, reservation_id, result_bytes, approver, error_code, reason, version, created_at, updated_at, ended_at"

// Query selects workflows.
type Query struct {
	// TokenID is the owner. All selects those of all owners.
	TokenID string
	All     bool
	// Approves also selects workflows with an approver, and AgentID those of its subtree only, "" for all.
	Approves bool
	AgentID  string
	// Decidable selects those that wait for a decision of the token.
	Decidable bool
	// States are the wanted states.
	States []int
	// Before is the id after which the list, which is ordered from new to old, begins.
	Before string
	Limit  int
}

// List returns workflows, the newest first, without their input.
func List(from store.Source, q Query) ([]Workflow, error) {
	var where filter.Clause
	q.restrict(&where)
	where.Optional("id < ?", q.Before)
	if len(q.States) > 0 {
		in, args := filter.In(q.States)
		where.And("state IN "+in, args...)
	}
	return store.Rows[Workflow](from, "SELECT "+strings.Replace(workflowColumns, " input", " '' AS input", 1)+" FROM workflows"+where.SQL()+" ORDER BY id DESC LIMIT ?", append(where.Args, q.Limit)...)
}

// restrict adds which workflows the token sees, or may decide about.
func (q Query) restrict(where *filter.Clause) {
	var own, approved filter.Clause
	if !q.All {
		own.And("token_id = ?", q.TokenID)
	}
	approved.And("approver <> ''")
	if q.Decidable {
		where.And("state = 1")
		own.And("(approver = '' OR pause NOT IN ('approval', 'uncertain'))")
		approved.And("pause IN ('approval', 'uncertain') AND token_id <> ?", q.TokenID)
		if q.AgentID != "" {
			approved.And("approver = 'other' AND payer <> ?", q.AgentID)
		}
	}
	if q.AgentID != "" && !q.All {
		approved.And("(payer = ? OR payer IN (SELECT id FROM agents WHERE parent_id = ? OR parent_id IN (SELECT id FROM agents WHERE parent_id = ?)))", q.AgentID, q.AgentID, q.AgentID)
	}
	switch {
	case q.All && !q.Decidable:
	case q.Approves:
		where.And("("+own.Terms()+" OR "+approved.Terms()+")", append(own.Args, approved.Args...)...)
	default:
		where.And(own.Terms(), own.Args...)
	}
}

// Steps returns the steps of a workflow in order. Results of more than maxResult bytes are nil.
func Steps(from store.Source, id string, maxResult int) ([]Step, error) {
	return store.Rows[Step](from, `SELECT workflow_id, position, definition, first_layer, state, attempt, repeatable, approved, task_id, error_code, error, started_at, ended_at, tokens,
		CASE WHEN length(result) > ? THEN '' ELSE result END FROM workflow_steps WHERE workflow_id = ? ORDER BY position`, maxResult, id)
}

// Result returns the result of a step, or errs.NotFound.
func Result(from store.Source, id string, position int) (json.RawMessage, error) {
	return store.Row[json.RawMessage](from, "SELECT result FROM workflow_steps WHERE workflow_id = ? AND position = ?", id, position)
}

// CountActive returns the numbers of workflows of a token and of all tokens that have not ended; all is at most limit. It
// locks the row of the token only, so starts of several tokens on PostgreSQL do not count each other.
func CountActive(tx *store.Tx, tokenID string, limit int) (own, all int, err error) {
	if err = tx.Run("SELECT id FROM tokens WHERE id = ?"+store.ForUpdate(tx), tokenID); err != nil {
		return 0, 0, err
	}
	type counts struct{ Own, AllOwners int }
	n, err := store.Row[counts](tx, `SELECT (SELECT count(*) FROM workflows WHERE token_id = ? AND state < 2) AS own,
		(SELECT count(*) FROM (SELECT 1 FROM workflows WHERE state < 2 LIMIT ?) AS active) AS all_owners`, tokenID, limit)
	return n.Own, n.AllOwners, err
}

// CountOpen returns the number of running workflows, and that of open checkpoints by their kinds.
func CountOpen(from store.Source) (running int, waiting map[string]int, err error) {
	if running, err = store.Row[int](from, "SELECT count(*) FROM workflows WHERE state = 0"); err != nil {
		return 0, nil, err
	}
	type count struct {
		Kind string
		N    int
	}
	rows, err := store.Rows[count](from, "SELECT kind, count(*) FROM checkpoints WHERE state = 'open' GROUP BY kind")
	waiting = map[string]int{}
	for _, c := range rows {
		waiting[c.Kind] = c.N
	}
	return running, waiting, err
}

// Save stores the state of a workflow and increments its version. It returns ErrFenced if the stored version is not
// that of w.
func Save(tx *store.Tx, w Workflow) error {
	n, err := tx.Exec(`UPDATE workflows SET state = ?, pause = ?, confirmed = ?, revision = ?, holder = ?, budget = ?, used = ?, reserved = ?, result_bytes = ?, error_code = ?, reason = ?, version = version + 1, updated_at = ?, ended_at = ?
		WHERE id = ? AND version = ?`,
		w.State, w.Pause, w.Confirmed, w.Revision, w.Holder, w.Budget, w.Used, w.Reserved, w.ResultBytes, w.ErrorCode, columns.Text(w.Reason, maxText), tx.Now(), w.EndedAt, w.ID, w.Version)
	if err == nil && n == 0 {
		return ErrFenced
	}
	return err
}

// SetReservation stores the reservation of a workflow and what is left of it. Save precedes it in the transaction.
func SetReservation(tx *store.Tx, id, reservationID string, reserved int64) error {
	return tx.Run("UPDATE workflows SET reservation_id = ?, reserved = ? WHERE id = ?", reservationID, reserved, id)
}

// AddSteps stores further steps of a workflow.
func AddSteps(tx *store.Tx, steps []Step) error { return store.Insert(tx, "", steps...) }

// Extend adds steps to a workflow that runs, whichever process is its holder. w has the new revision. Extend returns the new
// version, and ErrFenced if the workflow no longer runs, or other steps were added or a layer was confirmed since w was read.
func Extend(tx *store.Tx, w Workflow, steps []Step) (version int64, err error) {
	version, err = store.Row[int64](tx, `UPDATE workflows SET revision = revision + 1, version = version + 1, updated_at = ?
		WHERE id = ? AND state = 0 AND revision = ? AND confirmed = ? RETURNING version`, tx.Now(), w.ID, w.Revision-1, w.Confirmed)
	switch {
	case errs.Is(err, errs.NotFound):
		return 0, ErrFenced
	case err != nil:
		return 0, err
	}
	return version, AddSteps(tx, steps)
}

// maxText is the longest error or reason that is stored, in bytes.
const maxText = 4000

// SaveStep stores the state of a step, except for its task.
func SaveStep(tx *store.Tx, s Step) error {
	return tx.Run(`UPDATE workflow_steps SET state = ?, attempt = ?, repeatable = ?, approved = ?, error_code = ?, error = ?, started_at = ?, ended_at = ?, tokens = ?, result = ?
		WHERE workflow_id = ? AND position = ?`,
		s.State, s.Attempt, s.Repeatable, s.Approved, s.ErrorCode, columns.Text(s.Error, maxText), s.StartedAt, s.EndedAt, s.Tokens, s.Result, s.WorkflowID, s.Position)
}

// SetTask stores the task of the running attempt of an agent step. It returns ErrFenced if the attempt no longer runs.
func SetTask(tx *store.Tx, id string, position, attempt int, taskID string) error {
	n, err := tx.Exec("UPDATE workflow_steps SET task_id = ? WHERE workflow_id = ? AND position = ? AND attempt = ? AND state = 1", taskID, id, position, attempt)
	if err == nil && n == 0 {
		err = ErrFenced
	}
	return err
}

// Tasks returns the tasks of the agent steps of a workflow.
func Tasks(from store.Source, id string) ([]string, error) {
	return store.Rows[string](from, "SELECT task_id FROM workflow_steps WHERE workflow_id = ? AND task_id <> '' ORDER BY position", id)
}

// HasTask reports whether a task is that of an agent step of a workflow.
func HasTask(from store.Source, id, taskID string) (bool, error) {
	found, err := store.Rows[int](from, "SELECT 1 FROM workflow_steps WHERE task_id = ? AND task_id <> '' AND workflow_id = ?", taskID, id)
	return len(found) > 0, err
}

// RunningTasks returns the tasks of the agent steps of a workflow that run.
func RunningTasks(from store.Source, id string) ([]string, error) {
	return store.Rows[string](from, "SELECT task_id FROM workflow_steps WHERE workflow_id = ? AND task_id <> '' AND state = 1 ORDER BY position", id)
}

// NewestCheckpoint returns the open checkpoint of a workflow, otherwise the newest one, or errs.NotFound.
func NewestCheckpoint(from store.Source, id string) (Checkpoint, error) {
	return store.Row[Checkpoint](from, "SELECT "+checkpointColumns+" FROM checkpoints WHERE workflow_id = ? ORDER BY CASE state WHEN 'open' THEN 0 ELSE 1 END, created_at DESC, id DESC LIMIT 1", id)
}

const checkpointColumns = "id, workflow_id, kind, layer, shown, digest, state, decided_by, via, feedback, resolution, created_at, decided_at, expires_at"

// GetCheckpoint returns a checkpoint of a workflow, or errs.NotFound.
func GetCheckpoint(from store.Source, workflowID, id string) (Checkpoint, error) {
	return store.Row[Checkpoint](from, "SELECT "+checkpointColumns+" FROM checkpoints WHERE workflow_id = ? AND id = ?", workflowID, id)
}

// Checkpoints returns up to limit checkpoints of a workflow, the newest first, from the first one before an id, "" for the
// newest.
func Checkpoints(from store.Source, workflowID, before string, limit int) ([]Checkpoint, error) {
	var where filter.Clause
	where.Equal("workflow_id", workflowID)
	where.Optional("id < ?", before)
	return store.Rows[Checkpoint](from, "SELECT "+checkpointColumns+" FROM checkpoints"+where.SQL()+" ORDER BY id DESC LIMIT ?", append(where.Args, limit)...)
}

// Names returns the names of tokens by their ids.
func Names(from store.Source, ids []string) (map[string]string, error) {
	in, args := filter.In(ids)
	return pairs(from, "SELECT id, name FROM tokens WHERE id IN "+in, args...)
}

// Workers returns the agents that execute the newest attempts of a workflow's tasks, by task id.
func Workers(from store.Source, id string) (map[string]string, error) {
	return pairs(from, "SELECT id, agent_id FROM tasks WHERE id IN (SELECT task_id FROM workflow_steps WHERE workflow_id = ? AND task_id <> '')", id)
}

func pairs(from store.Source, query string, args ...any) (map[string]string, error) {
	type pair struct{ Key, Value string }
	rows, err := store.Rows[pair](from, query, args...)
	out := map[string]string{}
	for _, p := range rows {
		out[p.Key] = p.Value
	}
	return out, err
}

// Decide stores the decision on an open checkpoint. It returns ErrFenced if the checkpoint is no longer open.
func Decide(tx *store.Tx, c Checkpoint) error {
	n, err := tx.Exec("UPDATE checkpoints SET state = ?, decided_by = ?, via = ?, feedback = ?, resolution = ?, decided_at = ? WHERE id = ? AND state = 'open'",
		c.State, c.DecidedBy, c.Via, columns.Text(c.Feedback, maxText), c.Resolution, tx.Now(), c.ID)
	if err == nil && n == 0 {
		return ErrFenced
	}
	return err
}

// Ask stores the key of the last question to a client about a checkpoint, "" for none.
func Ask(tx *store.Tx, checkpoint, key string) error {
	return tx.Run("UPDATE checkpoints SET ask = ? WHERE id = ?", key, checkpoint)
}

// IsAsked reports whether key is that of the last question about a checkpoint of a token's workflow, or returns errs.NotFound.
func IsAsked(from store.Source, tokenID, workflowID, checkpoint, key string) (bool, error) {
	stored, err := store.Row[string](from, "SELECT c.ask FROM checkpoints c JOIN workflows w ON w.id = c.workflow_id WHERE c.id = ? AND c.workflow_id = ? AND w.token_id = ?",
		checkpoint, workflowID, tokenID)
	return err == nil && key != "" && subtle.ConstantTimeCompare([]byte(stored), []byte(key)) == 1, err
}

// Orphans returns the ids of up to limit running workflows without a holder, in order, from the first one after an id.
func Orphans(from store.Source, after string, limit int) ([]string, error) {
	return store.Rows[string](from, "SELECT id FROM workflows WHERE state = 0 AND holder = '' AND id > ? ORDER BY id LIMIT ?", after, limit)
}

// Disown removes a process as the holder of a workflow that it does not execute, and reports whether it was the holder.
// The process must enqueue the job that adopts the workflow.
func Disown(tx *store.Tx, id, process string) (bool, error) {
	n, err := tx.Exec("UPDATE workflows SET holder = '', version = version + 1 WHERE id = ? AND state = 0 AND holder = ?", id, process)
	return n > 0, err
}

// Purge deletes up to limit workflows that ended before a time, with their steps and checkpoints.
func Purge(tx *store.Tx, before time.Time, limit int) (int64, error) {
	ids, err := store.Rows[string](tx, "SELECT id FROM workflows WHERE state >= 2 AND ended_at < ? ORDER BY ended_at LIMIT ?", before, limit)
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	for _, table := range []string{"checkpoints WHERE workflow_id ", "workflow_steps WHERE workflow_id ", "workflows WHERE id "} {
		if err := tx.Run("DELETE FROM "+table+store.In(tx), store.Keys(ids)); err != nil {
			return 0, err
		}
	}
	return int64(len(ids)), nil
}
