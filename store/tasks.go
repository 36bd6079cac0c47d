package store

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/models"
	"comet/store/cache"
	"comet/store/columns"
	"comet/store/filter"
)

// BenchmarkAccept and BenchmarkRoundTrip in internal/bench measure the hand-written statements on
// tasks, attempts and outputs.

// mayFollow reports whether a task may go from one state to another (PROTOCOL_V5 §4.1). Every open
// state may follow itself. A retry makes a running task new again. A new task fails if it gets no
// worker, or none in time.
func mayFollow(from, to models.TaskState) bool {
	switch from {
	case to:
		return !from.Ended()
	case models.TaskNew:
		return to != models.TaskNew // a result implies that the task was running
	case models.TaskRunning:
		return to == models.TaskDone || to == models.TaskFailed || to == models.TaskCancelled || to == models.TaskNew
	}
	return false
}

// maxInlineInput is the largest input, in bytes of parameters and meta, that is stored with its task.
// A longer one has its own row, so that a change of the task does not write it again.
const maxInlineInput = 4 << 10

// taskRow is the row of a task.
type taskRow struct {
	models.Task      `gorm:"embedded"`
	models.TaskInput `gorm:"embedded"`
	RequestKey       []byte // NULL without a request id
	RequestDigest    []byte
}

// Insert stores a new task with its input and the request that made it. It returns errs.Conflict for
// an id that is taken, and ErrRequestExists if another task was made by the same request.
func (tx Tasks) Insert(t models.Task, in models.TaskInput, request TaskRequest) error {
	row := taskRow{Task: t, TaskInput: in}
	if request.RequestID != "" {
		row.RequestKey, row.RequestDigest = request.key(), request.Digest[:]
	}
	long := len(in.Parameters)+len(in.Meta) > maxInlineInput
	if long {
		row.Parameters, row.Meta = nil, nil
	}
	n, err := createOne(tx.reader, "ON CONFLICT (request_key) WHERE request_key IS NOT NULL DO NOTHING", row)
	switch {
	case err != nil:
		return err
	case n == 0:
		return ErrRequestExists
	}
	tx.store.cache.Queue(&tx.state.cached, queued(t))
	if t.MessageID != "" {
		tx.store.cache.Assign(&tx.state.cached, t)
	}
	tx.changed(t.ID, &t)
	if long {
		return tx.run("INSERT INTO task_inputs (task_id, parameters, meta) VALUES (?, ?, ?)", t.ID, in.Parameters, in.Meta)
	}
	in.TaskID = t.ID
	tx.state.after = append(tx.state.after, func() { tx.store.cache.AddInput(t, in) })
	return nil
}

// Lock returns a task and locks it until the transaction ends, or errs.NotFound. A parent is
// locked before its subtasks. PostgreSQL reads the parent again if a subtask is changed
// twice in a transaction; that must not wait for the parent's lock.
func (tx Tasks) Lock(id string) (models.Task, error) {
	if row := tx.cached(id); row != nil {
		return *row, nil
	}
	return one[models.Task](tx.reader, selectRows[models.Task]("WHERE id = ?")+tx.engine.forNoKey, id)
}

// Get returns a task, or errs.NotFound. In a transaction only its immutable fields, such as its
// parent, may be relied on: it does not lock the task.
func (r taskReader) Get(id string) (models.Task, error) {
	if row := r.cached(id); row != nil {
		return *row, nil
	}
	return one[models.Task](r.reader, selectRows[models.Task]("WHERE id = ?"), id)
}

// Save stores what has changed of a task that Lock returned and increments its version. A
// transition that PROTOCOL_V5 §4.1 does not allow is errs.TaskState.
func (tx Tasks) Save(before models.Task, after *models.Task) error {
	if !mayFollow(before.State, after.State) {
		return errs.New(errs.TaskState, "a task that is %s cannot become %s", before.State, after.State).With("state", before.State)
	}
	after.Version, after.UpdatedAt = before.Version+1, tx.now
	if after.State.Ended() {
		after.QueueKey = ""
	}
	changed := columns.Changed(&before, after)
	n, err := update(tx.reader, *after, changed, "id = ? AND version = ?", before.ID, before.Version)
	if err == nil && n == 0 {
		err = errs.New(errs.Conflict, "another request has changed the task")
	}
	if err == nil {
		row := *after
		tx.store.cache.Queue(&tx.state.cached, queued(row)-queued(before))
		if row.MessageID != before.MessageID {
			tx.store.cache.Assign(&tx.state.cached, row)
		}
		tx.changed(row.ID, &row)
	}
	return err
}

// AddTokens adds to the tokens that a task has used, and to those of its newest attempt if newest is
// set; the task may have ended.
func (tx Tasks) AddTokens(taskID string, n int64, newest bool) error {
	tx.changed(taskID, nil)
	attempt := int64(0)
	if newest {
		attempt = n
	}
	return tx.run("UPDATE tasks SET tokens = tokens + ?, attempt_tokens = attempt_tokens + ? WHERE id = ?", n, attempt, taskID)
}

// Postpone moves the deadline of a task that could not be handled.
func (tx Tasks) Postpone(taskID string, to time.Time) error {
	tx.changed(taskID, nil)
	return tx.run("UPDATE tasks SET deadline = ? WHERE id = ? AND state < 2", to, taskID)
}

// Due returns up to limit open tasks whose deadline has passed, the earliest first.
func (r taskReader) Due(limit int) ([]string, error) {
	return list[string](r.reader, "SELECT id FROM tasks WHERE state < 2 AND deadline <= ? ORDER BY deadline LIMIT ?", r.now, limit)
}

// NextDeadline returns the earliest deadline of an open task; ok is false if there is none.
func (r taskReader) NextDeadline() (at time.Time, ok bool, err error) {
	at, err = one[time.Time](r.reader, "SELECT deadline FROM tasks WHERE state < 2 ORDER BY deadline LIMIT 1")
	return at, err == nil, exceptMissing(err)
}

// Committed returns a task as this process has committed it last, nil if it is not known. Another
// process may have changed it since.
func (r taskReader) Committed(id string) *models.Task { return r.store.cache.Committed(id) }

// Input returns the input of a task, which never changes, or errs.NotFound.
func (r taskReader) Input(t models.Task) (models.TaskInput, error) {
	if in, known := r.store.cache.Input(t); known {
		return in, nil
	}
	in, err := one[models.TaskInput](r.reader, selectRows[models.TaskInput]("WHERE id = ?"), t.ID)
	if err != nil {
		return in, err
	}
	if in.TaskID = t.ID; in.Parameters != nil {
		if r.state == nil { // it is committed
			r.store.cache.AddInput(t, in)
		}
		return in, nil
	}
	long, err := one[longInput](r.reader, "SELECT parameters, meta FROM task_inputs WHERE task_id = ?", t.ID)
	in.Parameters, in.Meta = long.Parameters, long.Meta
	return in, err
}

// longInput is the part of an input that has its own row.
type longInput struct{ Parameters, Meta json.RawMessage }

// List returns the page of tasks that q selects, the newest first.
func (r taskReader) List(q TaskQuery) ([]models.ListedTask, error) {
	query, args := tasksQuery(q)
	return list[models.ListedTask](r.reader, query, args...)
}

func tasksQuery(q TaskQuery) (string, []any) {
	var where filter.Clause
	if q.State != "" { // as a literal, which is how the planner finds the index of the open ones
		where.And(fmt.Sprintf("state = %d", columns.Index(q.State)))
		if !q.State.Ended() {
			where.And("state < 2")
		}
	}
	if q.WaitingFor != "" {
		where.And(fmt.Sprintf("waiting_for = %d AND state < 2", columns.Index(q.WaitingFor)))
	}
	where.Equal("agent_id", q.AgentID)
	where.Equal("owner", q.Owner)
	if q.Root != "" {
		where.And("(agent_id "+InSubtree+" OR owner_agent_id "+InSubtree+")", q.Root, q.Root)
	}
	where.Equal("parent_id", q.ParentID)
	where.Prefix("id", q.IDPrefix)
	if q.RequestID != "" {
		where.And("request_key = ?", TaskRequest{Owner: q.Owner, RequestID: q.RequestID}.key())
	}
	where.Optional("trace LIKE '00-' || CAST(? AS TEXT) || '-%'", q.TraceID) // without an index, which would cost about 80 bytes for each task
	where.Optional(fmt.Sprintf("substr(coalesce(nullif(meta, ''), (SELECT i.meta FROM task_inputs i WHERE i.task_id = tasks.id)), 1, %d) = ?", utf8.RuneCountInString(q.MetaPrefix)), q.MetaPrefix)
	where.Optional("session_id = ? AND session_id <> ''", q.SessionID)
	where.Time("created_at >= ?", q.Since)
	where.Time("created_at < ?", q.Until)
	if q.Before.ID != "" {
		where.And("(created_at, id) < (?, ?)", q.Before.CreatedAt, q.Before.ID)
	}
	return selectRows[models.ListedTask](where.SQL()) + " ORDER BY created_at DESC, id DESC LIMIT ?", append(where.Args, q.Limit)
}

// NextQueued returns the first task of a queue, except those in except, and locks it. ok is false
// when none is queued or another transaction holds the first one: later tasks do not overtake it.
func (tx Tasks) NextQueued(queue string, except ...string) (t models.Task, ok bool, err error) {
	besides, args := "", []any{queue}
	if len(except) > 0 {
		list, more := filter.In(except)
		besides, args = " AND id NOT IN "+list, append(args, more...)
	}
	t, err = one[models.Task](tx.reader, selectRows[models.Task]("WHERE waiting_for = 1 AND id = (SELECT id FROM tasks WHERE queue_key = ? AND waiting_for = 1")+besides+
		" ORDER BY priority DESC, created_at, id LIMIT 1)"+tx.engine.skipLocked, args...)
	return t, err == nil, exceptMissing(err)
}

// WaitsAhead reports whether a queue holds a task that a new task with the priority may not
// overtake.
func (r taskReader) WaitsAhead(queue string, priority int) (bool, error) {
	if r.noneQueued() {
		return false, nil
	}
	return one[bool](r.reader, "SELECT EXISTS (SELECT 1 FROM tasks WHERE queue_key = ? AND waiting_for = 1 AND priority >= ?)", queue, priority)
}

// CountWaiting returns the length of a queue, up to limit.
func (r taskReader) CountWaiting(queue string, limit int) (int, error) {
	return one[int](r.reader, "SELECT count(*) FROM (SELECT 1 FROM tasks WHERE queue_key = ? AND waiting_for = 1 LIMIT ?) AS queued", queue, limit)
}

// WaitingQueues returns up to limit queues with waiting tasks, those with the highest
// priority first, then those with the longest wait.
func (r taskReader) WaitingQueues(limit int) ([]QueuedRoute, error) {
	if r.noneQueued() {
		return nil, errors.Join(r.store.usable(), r.ctx.Err())
	}
	const query = "SELECT queue_key, count(*) FROM tasks WHERE waiting_for = 1 GROUP BY queue_key ORDER BY max(priority) DESC, min(created_at) LIMIT ?"
	return list[QueuedRoute](r.reader, query, limit)
}

// OpenOf returns up to limit tasks whose newest attempt is running at an agent.
func (r taskReader) OpenOf(agentID string, limit int) ([]string, error) {
	const query = "SELECT id FROM tasks WHERE agent_id = ? AND state < 2 AND waiting_for IN (0, 3) ORDER BY created_at, id LIMIT ?"
	return list[string](r.reader, query, agentID, limit)
}

// InFlight counts the open attempts of each agent that has any.
func (r taskReader) InFlight() ([]AttemptCount, error) {
	return list[AttemptCount](r.reader, "SELECT agent_id, count(*) FROM tasks WHERE state < 2 AND waiting_for IN (0, 3) AND agent_id <> '' GROUP BY agent_id")
}

// AttemptCount is the number of open attempts of an agent.
type AttemptCount struct {
	AgentID  string
	Attempts int
}

// CountOpen counts the tasks that have not ended by what they wait for.
func (r taskReader) CountOpen() (map[models.WaitReason]int, error) {
	type waiting struct {
		WaitingFor models.WaitReason
		Tasks      int
	}
	out := map[models.WaitReason]int{}
	err := each(r.reader, func(w waiting) error {
		out[w.WaitingFor] = w.Tasks
		return nil
	}, "SELECT waiting_for, count(*) FROM tasks WHERE state < 2 GROUP BY waiting_for")
	return out, err
}

// Purge deletes up to limit tasks that were created and ended before a time, with their attempts and
// outputs, and returns how many. A task with subtasks or with an open parent stays.
func (tx Tasks) Purge(before time.Time, limit int) (int64, error) {
	ids, err := list[string](tx.reader, `DELETE FROM tasks WHERE id IN (SELECT id FROM tasks AS t WHERE created_at < ? AND state >= 2 AND ended_at < ? AND
		NOT EXISTS (SELECT 1 FROM tasks AS child WHERE child.parent_id = t.id) AND
		NOT EXISTS (SELECT 1 FROM tasks AS parent WHERE parent.id = t.parent_id AND parent.state < 2) ORDER BY created_at LIMIT ?) RETURNING id`, before, before, limit)
	for _, id := range ids {
		tx.changed(id, nil)
	}
	return int64(len(ids)), err
}

// Requested returns the id of the task that a request has created and the digest of that request,
// or errs.NotFound.
func (r taskReader) Requested(request TaskRequest) (TaskRequest, error) {
	type made struct {
		ID            string
		RequestDigest [32]byte
	}
	m, err := one[made](r.reader, "SELECT id, request_digest FROM tasks WHERE request_key = ?", request.key())
	request.TaskID, request.Digest = m.ID, m.RequestDigest
	return request, err
}

// ErrRequestExists is returned if a concurrent request with the same id has created a task.
var ErrRequestExists = errors.New("a concurrent request has made the task")

// TaskQuery selects a page of tasks, newest first. Zero fields do not filter.
type TaskQuery struct {
	State models.TaskState
	// WaitingFor selects the open tasks that wait for it.
	WaitingFor models.WaitReason
	// IDPrefix is the beginning of the ids.
	IDPrefix, AgentID, SessionID, Owner string
	// RequestID selects the task that Owner requested with it; TraceID those of a trace; MetaPrefix those whose TaskInput.Meta begins so.
	RequestID, TraceID, MetaPrefix string
	// Root selects the tasks of an agent and of the agents below it, and those that they requested.
	Root     string
	ParentID string
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

// QueuedRoute is a queue with waiting tasks.
type QueuedRoute struct {
	Route string
	Tasks int64
}

// TaskRequest identifies a request, so that a repetition finds the task. It identifies none if
// RequestID is "".
type TaskRequest struct {
	Owner     string
	RequestID string
	// Digest is the SHA-256 of the request.
	Digest [32]byte
	TaskID string
}

// key returns the key of the request in the table of tasks: 16 bytes of a hash of the owner and the id.
func (r TaskRequest) key() []byte {
	sum := sha256.Sum256([]byte(r.Owner + "/" + r.RequestID))
	return sum[:16]
}

// cached returns the row of a task as the reader sees it, nil if only SQL knows it.
func (r taskReader) cached(id string) *models.Task { return r.store.cache.Task(r.ownChange(), id) }

// noneQueued reports whether the cache knows that no task waits for an agent.
func (r taskReader) noneQueued() bool { return r.store.cache.NoneQueued(r.ownChange()) }

// ownChange returns what the transaction of the reader has changed, nil outside of one.
func (r taskReader) ownChange() *cache.Change {
	if r.state == nil {
		return nil
	}
	return &r.state.cached
}

// queued returns 1 for a task that waits for an agent, and 0 for any other.
func queued(t models.Task) int64 {
	if t.WaitingFor == models.WaitForWorker {
		return 1
	}
	return 0
}

// changed records the row of a task that the transaction has written, nil if only SQL knows it.
func (tx Tasks) changed(id string, row *models.Task) {
	tx.store.cache.SetTask(&tx.state.cached, id, row)
}
