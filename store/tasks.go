package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
)

const (
	taskColumns = "id, session_id, parent_id, depth, class, owner, asker, route, priority, state, waits, attempt, agent_id, budget, tokens, deadline, " +
		"progress, step, step_name, questions, output, logged, exit_code, error_code, error, detail, decision, version, created_at, started_at, updated_at, ended_at"
	taskInputColumns = "task_id, capabilities, agent_type, sphere_id, wanted, parameters, policy, meta, trace"
)

// taskStates and taskWaits are numbered by their place.
func taskStates() []models.TaskState {
	return []models.TaskState{models.TaskNew, models.TaskRunning, models.TaskDone, models.TaskFailed, models.TaskCancelled}
}

func taskWaits() []models.WaitReason {
	return []models.WaitReason{models.NotWaiting, models.WaitForWorker, models.WaitForRetry, models.WaitForReply}
}

// mayFollow reports whether a task may go from one state to another
// (PROTOCOL_V5 §4.1); staying where it is is no step. A retry makes a running task
// new again, and a new one that nobody can do, or that is not taken in time, fails.
func mayFollow(from, to models.TaskState) bool {
	switch from {
	case to:
		return !from.Ended()
	case models.TaskNew:
		return to == models.TaskRunning || to == models.TaskFailed || to == models.TaskCancelled
	case models.TaskRunning:
		return to == models.TaskDone || to == models.TaskFailed || to == models.TaskCancelled || to == models.TaskNew
	}
	return false
}

// taskRow is the scan target of taskColumns; numbers go into interfaces, which the
// drivers fill without a detour.
type taskRow struct {
	t                                                                models.Task
	depth, priority, state, waits, attempt, budget, tokens, deadline any
	progress, step, questions, output, logged, exit, version         any
	created, started, updated, ended                                 any
	decision, detail                                                 string
}

func (r *taskRow) dest() []any {
	t := &r.t
	return []any{
		&t.ID, &t.SessionID, &t.ParentID, &r.depth, &t.Class, &t.Owner, &t.OwnerAgent, &t.QueueKey, &r.priority, &r.state, &r.waits, &r.attempt, &t.AgentID,
		&r.budget, &r.tokens, &r.deadline, &r.progress, &r.step, &t.StepName, &r.questions, &r.output, &r.logged, &r.exit, &t.ErrorCode, &t.Error, &r.detail, &r.decision,
		&r.version, &r.created, &r.started, &r.updated, &r.ended,
	}
}

func (r *taskRow) task() models.Task {
	t := r.t
	t.Depth, t.Priority, t.Attempt = int(whole(r.depth)), int(whole(r.priority)), int(whole(r.attempt))
	t.State, t.WaitingFor = taskStates()[whole(r.state)], taskWaits()[whole(r.waits)]
	t.Tokens, t.Deadline = whole(r.tokens), fromMicros(whole(r.deadline))
	t.Progress, t.Step, t.Questions = int(whole(r.progress)), int(whole(r.step)), int(whole(r.questions))
	t.OutputBytes, t.LogBytes, t.Version = whole(r.output), whole(r.logged), whole(r.version)
	if r.budget != nil {
		t.Budget = new(whole(r.budget))
	}
	if r.exit != nil {
		t.ExitCode = new(int(whole(r.exit)))
	}
	if r.detail != "" {
		t.Detail = json.RawMessage(r.detail)
	}
	if r.decision != "" {
		t.Decision = json.RawMessage(r.decision)
	}
	t.CreatedAt, t.UpdatedAt = fromMicros(whole(r.created)), fromMicros(whole(r.updated))
	t.StartedAt, t.EndedAt = momentOf(r.started), momentOf(r.ended)
	return t
}

// momentOf is the time in a column that a driver filled into an interface, nil for NULL.
func momentOf(v any) *time.Time {
	if v == nil {
		return nil
	}
	return new(fromMicros(whole(v)))
}

func scanTasks(out *[]models.Task) func(*sql.Rows) error {
	return func(rows *sql.Rows) error {
		var r taskRow
		err := rows.Scan(r.dest()...)
		if err == nil {
			*out = append(*out, r.task())
		}
		return err
	}
}

// mutable are the values of the columns of a task that change, in the order of saveTask.
func mutableOf(t models.Task) []any {
	return []any{
		slices.Index(taskStates(), t.State), slices.Index(taskWaits(), t.WaitingFor), t.Attempt, t.AgentID, t.Tokens, micros(t.Deadline),
		t.Progress, t.Step, t.StepName, t.Questions, t.OutputBytes, t.LogBytes, nullable(t.ExitCode), t.ErrorCode, t.Error, string(t.Detail), string(t.Decision),
		t.Version, nullable(microsPtr(t.StartedAt)), micros(t.UpdatedAt), nullable(microsPtr(t.EndedAt)),
	}
}

const (
	saveTask = `UPDATE tasks SET state = ?, waits = ?, attempt = ?, agent_id = ?, tokens = ?, deadline = ?, progress = ?, step = ?, step_name = ?,
		questions = ?, output = ?, logged = ?, exit_code = ?, error_code = ?, error = ?, detail = ?, decision = ?, version = ?, started_at = ?, updated_at = ?, ended_at = ?
		WHERE id = ? AND version = ?`
	insertTask = `INSERT INTO tasks (state, waits, attempt, agent_id, tokens, deadline, progress, step, step_name, questions, output, logged, exit_code, error_code,
		error, detail, decision, version, started_at, updated_at, ended_at, id, session_id, parent_id, depth, class, owner, asker, route, priority, budget, created_at) VALUES (?`
)

// InsertTask writes a new task and what it was asked for with. It returns
// errs.Conflict for an id that is taken.
func (tx *Tx) InsertTask(t models.Task, in models.TaskInput) error {
	args := append(mutableOf(t), t.ID, t.SessionID, nullable(t.ParentID), t.Depth, t.Class, t.Owner, t.OwnerAgent, t.QueueKey, t.Priority,
		nullable(t.Budget), micros(t.CreatedAt))
	if _, err := tx.exec(insertTask+strings.Repeat(", ?", len(args)-1)+")", args...); err != nil {
		return err
	}
	capabilities, err := encodeStrings(in.Capabilities)
	if err != nil {
		return err
	}
	_, err = tx.exec("INSERT INTO task_inputs ("+taskInputColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		t.ID, capabilities, in.AgentType, in.Sphere, in.RequestedAgentID, string(in.Parameters), string(in.Policy), string(in.Meta), in.Trace)
	return err
}

// Task returns a task and locks it until the transaction ends, or errs.NotFound. A whole is
// locked before its parts, and PostgreSQL looks for the whole again where a part is changed
// twice in a transaction: that must not wait for who has locked it.
func (tx *Tx) Task(id string) (models.Task, error) {
	var r taskRow
	err := tx.queryRow("SELECT "+taskColumns+" FROM tasks WHERE id = ?"+tx.store.dialect.forNoKey, []any{id}, r.dest()...)
	if err != nil {
		return models.Task{}, err
	}
	return r.task(), nil
}

// SaveTask writes what has changed of a task that Task returned and counts its version
// up. A step that is not one of PROTOCOL_V5 §4.1 is errs.TaskState.
func (tx *Tx) SaveTask(before models.Task, after *models.Task) error {
	if !mayFollow(before.State, after.State) {
		return errs.New(errs.TaskState, "a task that is %s cannot become %s", before.State, after.State).With("state", before.State)
	}
	after.Version, after.UpdatedAt = before.Version+1, tx.now
	n, err := tx.exec(saveTask, append(mutableOf(*after), before.ID, before.Version)...)
	if err == nil && n == 0 {
		err = errs.New(errs.Conflict, "the task was changed by somebody else")
	}
	return err
}

// Task returns a task, or errs.NotFound.
func (s *Store) Task(ctx context.Context, id string) (models.Task, error) {
	var r taskRow
	if err := s.queryRow(ctx, s.dialect.bind("SELECT "+taskColumns+" FROM tasks WHERE id = ?"), []any{id}, r.dest()...); err != nil {
		return models.Task{}, err
	}
	return r.task(), nil
}

const inputQuery = "SELECT " + taskInputColumns + " FROM task_inputs WHERE task_id = ?"

// TaskInput returns what a task was asked for with, or errs.NotFound.
func (s *Store) TaskInput(ctx context.Context, id string) (models.TaskInput, error) {
	var r taskInputRow
	if err := s.queryRow(ctx, s.dialect.bind(inputQuery), []any{id}, r.dest()...); err != nil {
		return models.TaskInput{}, err
	}
	return r.input()
}

// TaskInput is Store.TaskInput in a transaction.
func (tx *Tx) TaskInput(id string) (models.TaskInput, error) {
	var r taskInputRow
	if err := tx.queryRow(inputQuery, []any{id}, r.dest()...); err != nil {
		return models.TaskInput{}, err
	}
	return r.input()
}

// taskInputRow is the scan target of taskInputColumns.
type taskInputRow struct {
	in                                     models.TaskInput
	capabilities, parameters, policy, meta string
}

func (r *taskInputRow) dest() []any {
	return []any{
		&r.in.TaskID, &r.capabilities, &r.in.AgentType, &r.in.Sphere, &r.in.RequestedAgentID, &r.parameters, &r.policy, &r.meta, &r.in.Trace,
	}
}

func (r *taskInputRow) input() (models.TaskInput, error) {
	in := r.in
	in.Parameters, in.Policy, in.Meta = json.RawMessage(r.parameters), json.RawMessage(r.policy), json.RawMessage(r.meta)
	var err error
	in.Capabilities, err = decodeStrings(r.capabilities)
	return in, err
}
