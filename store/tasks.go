package store

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// TaskReader reads tasks, on the read pool or in a transaction.
type TaskReader struct{ from reader }

// Tasks holds the operations of a transaction on tasks.
type Tasks struct {
	TaskReader
	*transaction
}

// Tasks returns the operations on tasks.
func (tx *Tx) Tasks() Tasks { return Tasks{TaskReader{tx.reader}, &tx.transaction} }

// Tasks returns the reads of tasks.
func (s *Store) Tasks(ctx context.Context) TaskReader { return TaskReader{s.on(ctx)} }

// BenchmarkAccept and BenchmarkRoundTrip in internal/bench measure the statements on tasks, attempts
// and outputs, which are written by hand.

const (
	taskColumns = "id, session_id, parent_id, depth, class, owner, owner_agent_id, queue_key, on_end, priority, state, waiting_for, attempt, agent_id, budget, tokens, deadline, " +
		"progress, step, step_name, questions, output_bytes, log_bytes, exit_code, error_code, error, detail, decision, version, created_at, started_at, updated_at, ended_at"
	taskInputColumns = "task_id, capabilities, agent_type, sphere_id, requested_agent_id, parameters, policy, meta, trace"
)

// taskStates and taskWaits are numbered by their index.
func taskStates() []models.TaskState {
	return []models.TaskState{models.TaskNew, models.TaskRunning, models.TaskDone, models.TaskFailed, models.TaskCancelled}
}

func taskWaits() []models.WaitReason {
	return []models.WaitReason{models.NotWaiting, models.WaitForWorker, models.WaitForRetry, models.WaitForReply}
}

// mayFollow reports whether a task may go from one state to another
// (PROTOCOL_V5 §4.1). Every open state may follow itself. A retry makes a running task
// new again; a new task without a worker, or without one in time, fails.
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

// taskDest returns the scan targets of taskColumns.
func taskDest(t *models.Task) []any {
	return []any{
		&t.ID, &t.SessionID, &t.ParentID, intInto(&t.Depth), &t.Class, &t.Owner, &t.OwnerAgent, &t.QueueKey, &t.OnEnd, intInto(&t.Priority),
		enumInto(&t.State, taskStates()), enumInto(&t.WaitingFor, taskWaits()), intInto(&t.Attempt), &t.AgentID, intPtrInto(&t.Budget), &t.Tokens,
		ScanTime{&t.Deadline}, intInto(&t.Progress), intInto(&t.Step), &t.StepName, intInto(&t.Questions), &t.OutputBytes, &t.LogBytes,
		intPtrInto(&t.ExitCode), &t.ErrorCode, &t.Error, scanJSON{&t.Detail}, scanJSON{&t.Decision},
		&t.Version, ScanTime{&t.CreatedAt}, scanTimePtr{&t.StartedAt}, ScanTime{&t.UpdatedAt}, scanTimePtr{&t.EndedAt},
	}
}

// mutableOf returns the values of the columns of a task that change, in the order of saveTask.
func mutableOf(t models.Task) []any {
	return []any{
		slices.Index(taskStates(), t.State), slices.Index(taskWaits(), t.WaitingFor), t.Attempt, t.AgentID, t.Tokens, Micros(t.Deadline),
		t.Progress, t.Step, t.StepName, t.Questions, t.OutputBytes, t.LogBytes, nullable(t.ExitCode), t.ErrorCode, t.Error, string(t.Detail), string(t.Decision),
		t.Version, nullable(microsPtr(t.StartedAt)), Micros(t.UpdatedAt), nullable(microsPtr(t.EndedAt)),
	}
}

const (
	saveTask = `UPDATE tasks SET state = ?, waiting_for = ?, attempt = ?, agent_id = ?, tokens = ?, deadline = ?, progress = ?, step = ?, step_name = ?,
		questions = ?, output_bytes = ?, log_bytes = ?, exit_code = ?, error_code = ?, error = ?, detail = ?, decision = ?, version = ?, started_at = ?, updated_at = ?, ended_at = ?
		WHERE id = ? AND version = ?`
	insertTask = `INSERT INTO tasks (state, waiting_for, attempt, agent_id, tokens, deadline, progress, step, step_name, questions, output_bytes, log_bytes, exit_code, error_code,
		error, detail, decision, version, started_at, updated_at, ended_at, id, session_id, parent_id, depth, class, owner, owner_agent_id, queue_key, on_end, priority, budget, created_at) VALUES (?`
)

// Insert stores a new task with its input. It returns errs.Conflict for an id that is taken.
func (tx Tasks) Insert(t models.Task, in models.TaskInput) error {
	args := append(mutableOf(t), t.ID, t.SessionID, nullable(t.ParentID), t.Depth, t.Class, t.Owner, t.OwnerAgent, t.QueueKey, t.OnEnd, t.Priority,
		nullable(t.Budget), Micros(t.CreatedAt))
	if err := tx.each(insertTask+strings.Repeat(", ?", len(args)-1)+")", args...); err != nil {
		return err
	}
	capabilities, err := encodeStrings(in.Capabilities)
	if err != nil {
		return err
	}
	return tx.each("INSERT INTO task_inputs ("+taskInputColumns+") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
		t.ID, capabilities, in.AgentType, in.Sphere, in.RequestedAgentID, string(in.Parameters), string(in.Policy), string(in.Meta), in.Trace)
}

const selectTask = "SELECT " + taskColumns + " FROM tasks WHERE id = ?"

// Lock returns a task and locks it until the transaction ends, or errs.NotFound. A parent is
// locked before its subtasks. PostgreSQL reads the parent again if a subtask is changed
// twice in a transaction; that must not wait for the parent's lock.
func (tx Tasks) Lock(id string) (models.Task, error) {
	return one(tx.reader, selectTask+tx.engine.forNoKey, []any{id}, taskDest)
}

// Get returns a task, or errs.NotFound. In a transaction only its immutable fields, such as its
// parent, may be relied on: it does not lock the task.
func (r TaskReader) Get(id string) (models.Task, error) {
	return one(r.from, selectTask, []any{id}, taskDest)
}

// Save stores what has changed of a task that Lock returned and counts its version
// up. A transition that PROTOCOL_V5 §4.1 does not allow is errs.TaskState.
func (tx Tasks) Save(before models.Task, after *models.Task) error {
	if !mayFollow(before.State, after.State) {
		return errs.New(errs.TaskState, "a task that is %s cannot become %s", before.State, after.State).With("state", before.State)
	}
	after.Version, after.UpdatedAt = before.Version+1, tx.now
	n, err := tx.exec(saveTask, append(mutableOf(*after), before.ID, before.Version)...)
	if err == nil && n == 0 {
		err = errs.New(errs.Conflict, "another request has changed the task")
	}
	return err
}

// SetBudget changes the budget that all attempts at a task share.
func (tx Tasks) SetBudget(taskID string, budget int64) error {
	return tx.each("UPDATE tasks SET budget = ? WHERE id = ?", budget, taskID)
}

// Rebudget changes the budget that all attempts at a task share and the reservation of an attempt.
func (tx Tasks) Rebudget(taskID string, budget int64, attempt int, reservationID string) error {
	if err := tx.SetBudget(taskID, budget); err != nil {
		return err
	}
	return tx.each("UPDATE attempts SET reservation_id = ? WHERE task_id = ? AND attempt = ?", reservationID, taskID, attempt)
}

// AddTokens adds to the tokens that a task has used; the task may have ended.
func (tx Tasks) AddTokens(taskID string, n int64) error {
	return tx.each("UPDATE tasks SET tokens = tokens + ? WHERE id = ?", n, taskID)
}

const selectInput = "SELECT " + taskInputColumns + " FROM task_inputs WHERE task_id = ?"

// Input returns the input of a task, or errs.NotFound.
func (r TaskReader) Input(id string) (models.TaskInput, error) {
	return one(r.from, selectInput, []any{id}, inputDest)
}

// inputDest returns the scan targets of taskInputColumns.
func inputDest(in *models.TaskInput) []any {
	return []any{
		&in.TaskID, scanStrings{&in.Capabilities}, &in.AgentType, intInto(&in.Sphere), &in.RequestedAgentID, scanJSON{&in.Parameters}, scanJSON{&in.Policy},
		scanJSON{&in.Meta}, &in.Trace,
	}
}

// List returns the page of tasks that q selects, the newest first.
func (r TaskReader) List(q TaskQuery) ([]models.Task, error) {
	query, args := tasksQuery(q)
	return list(r.from, query, args, taskDest)
}

func tasksQuery(q TaskQuery) (string, []any) {
	var terms []string
	var args []any
	where := func(term string, value any) { terms, args = append(terms, term), append(args, value) }
	if q.State != "" { // as a literal, which is how the planner finds the index of the open ones
		terms = append(terms, "state = "+strconv.Itoa(slices.Index(taskStates(), q.State)))
		if !q.State.Ended() {
			terms = append(terms, "state < 2")
		}
	}
	for _, term := range []struct{ column, value string }{
		{"agent_id", q.AgentID}, {"session_id", q.SessionID}, {"owner", q.Owner}, {"parent_id", q.ParentID},
	} {
		if term.value != "" {
			where(term.column+" = ?", term.value)
		}
	}
	if q.SessionID != "" {
		terms = append(terms, "session_id <> ''")
	}
	if !q.Since.IsZero() {
		where("created_at >= ?", Micros(q.Since))
	}
	if !q.Until.IsZero() {
		where("created_at < ?", Micros(q.Until))
	}
	if q.Before.ID != "" {
		terms, args = append(terms, "(created_at, id) < (?, ?)"), append(args, Micros(q.Before.CreatedAt), q.Before.ID)
	}
	return "SELECT " + taskColumns + " FROM tasks" + whereClause(terms) + " ORDER BY created_at DESC, id DESC LIMIT ?", append(args, q.Limit)
}

// NextQueued returns the first task of a queue, except those in but, and locks it. ok is false
// when none is queued or another transaction holds the first one: later tasks do not overtake it.
func (tx Tasks) NextQueued(queue string, but ...string) (t models.Task, ok bool, err error) {
	besides, args := "", []any{queue}
	if len(but) > 0 {
		list, more := inList(but)
		besides, args = " AND id NOT IN "+list, append(args, more...)
	}
	t, err = one(tx.reader, "SELECT "+taskColumns+" FROM tasks WHERE waiting_for = 1 AND id = (SELECT id FROM tasks WHERE queue_key = ? AND waiting_for = 1"+besides+
		" ORDER BY priority DESC, created_at, id LIMIT 1)"+tx.engine.skipLocked, args, taskDest)
	return t, err == nil, exceptMissing(err)
}

// WaitsAhead reports whether a queue holds a task that a new task with the priority may not
// overtake.
func (r TaskReader) WaitsAhead(queue string, priority int) (bool, error) {
	return value[bool](r.from, "SELECT EXISTS (SELECT 1 FROM tasks WHERE queue_key = ? AND waiting_for = 1 AND priority >= ?)", queue, priority)
}

// CountWaiting returns the length of a queue, up to limit.
func (r TaskReader) CountWaiting(queue string, limit int) (int, error) {
	return value[int](r.from, "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE queue_key = ? AND waiting_for = 1 LIMIT ?) AS queued", queue, limit)
}

// WaitingQueues returns up to limit queues with waiting tasks, those with the highest
// priority first, then those with the longest wait.
func (r TaskReader) WaitingQueues(limit int) ([]models.QueuedRoute, error) {
	const query = "SELECT queue_key, count(*) FROM tasks WHERE waiting_for = 1 GROUP BY queue_key ORDER BY max(priority) DESC, min(created_at) LIMIT ?"
	return list(r.from, query, []any{limit}, func(q *models.QueuedRoute) []any { return []any{&q.Route, &q.Tasks} })
}

// OpenOf returns up to limit tasks whose newest attempt is running at an agent.
func (r TaskReader) OpenOf(agentID string, limit int) ([]string, error) {
	const query = "SELECT id FROM tasks WHERE agent_id = ? AND state < 2 AND waiting_for IN (0, 3) ORDER BY created_at, id LIMIT ?"
	return list(r.from, query, []any{agentID, limit}, column[string])
}

// CountOpen counts the tasks that have not ended by what they wait for.
func (r TaskReader) CountOpen() (map[models.WaitReason]int, error) {
	out := map[models.WaitReason]int{}
	err := r.from.query("SELECT waiting_for, count(*) FROM tasks WHERE state < 2 GROUP BY waiting_for", nil, func(rows *sql.Rows) error {
		var wait, n int
		err := rows.Scan(&wait, &n)
		out[taskWaits()[wait]] = n
		return err
	})
	return out, err
}

// Purge deletes up to limit tasks that ended before a time, with their attempts and outputs,
// and returns how many. A task with subtasks or with an open parent stays.
func (tx Tasks) Purge(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM tasks WHERE id IN (SELECT id FROM tasks AS t WHERE state >= 2 AND ended_at < ? AND
		NOT EXISTS (SELECT 1 FROM tasks AS child WHERE child.parent_id = t.id) AND
		NOT EXISTS (SELECT 1 FROM tasks AS parent WHERE parent.id = t.parent_id AND parent.state < 2) ORDER BY ended_at LIMIT ?)`, Micros(before), limit)
}

// ClaimRequest stores that a request made a task. If the owner has used its request_id before, it
// returns the earlier request and false. Of two concurrent transactions the second waits for the
// first.
func (tx Tasks) ClaimRequest(r models.TaskRequest) (models.TaskRequest, bool, error) {
	n, err := tx.exec("INSERT INTO task_requests (owner, request_id, digest, task_id, created_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
		r.Owner, r.RequestID, r.Digest[:], r.TaskID, Micros(tx.now))
	if err != nil || n == 1 {
		return r, err == nil, err
	}
	earlier := models.TaskRequest{Owner: r.Owner, RequestID: r.RequestID}
	err = tx.queryRow("SELECT digest, task_id FROM task_requests WHERE owner = ? AND request_id = ?", []any{r.Owner, r.RequestID}, scanHash{&earlier.Digest}, &earlier.TaskID)
	if errs.Is(err, errs.NotFound) { // purged between the two
		err = errs.New(errs.Busy, "the stored request is being deleted; try again")
	}
	return earlier, false, err
}

// PurgeRequests deletes up to limit task requests made before a time and returns how many.
func (tx Tasks) PurgeRequests(before time.Time, limit int) (int64, error) {
	return tx.exec(`DELETE FROM task_requests WHERE (owner, request_id) IN
		(SELECT owner, request_id FROM task_requests WHERE created_at < ? ORDER BY created_at LIMIT ?)`, Micros(before), limit)
}

// TaskQuery selects a page of tasks, newest first. Zero fields do not filter.
type TaskQuery struct {
	State     models.TaskState
	AgentID   string
	SessionID string
	Owner     string
	ParentID  string
	// Since and Until limit the time of creation, [Since, Until).
	Since, Until time.Time
	// Before is the position after which the page starts, the zero value for the newest task.
	Before TaskCursor
	Limit  int
}

// TaskCursor is a position in the order of creation.
type TaskCursor struct {
	CreatedAt time.Time
	ID        string
}
