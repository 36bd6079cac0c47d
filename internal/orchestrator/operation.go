package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/input"
	"comet/internal/orchestrator/selection"
	"comet/internal/orchestrator/wakeups"
	"comet/models"
	"comet/store"
)

// operation is one run of a transaction. The transaction may run again from the start, so all
// state of a run is here.
type operation struct {
	*environment
	tx             *store.Tx
	wakes          []wakeups.Wake
	changedWorkers []models.Worker
	// events are written at the end of the transaction, in one statement.
	events []store.EventDraft
	// deadline is the earliest deadline that the operation has set.
	deadline time.Time
	// insertingID is the id of a task that is not inserted yet.
	insertingID string
	commitHooks []func(context.Context) // run after the commit
	// budgetErrors are the ledger's errors about budgets that did not cover the task; refusedBy lists
	// the agents.
	budgetErrors []*errs.Error
	refusedBy    []string
	// allowedWorkers are the only workers that may get a task, nil for any; their accounts are locked.
	// holdsAccount is set after a reservation, which locks the account of one agent.
	allowedWorkers []string
	holdsAccount   bool
	// slots are the attempts that were begun and ended; beforeCommit writes them.
	slots        []slotChange
	beforeCommit func() error
	known        known
}

// The errors that end a transaction if it finds no agent for a task. The index may not contain an
// agent that was just registered, or that has just joined another replica.
var (
	errStaleIndex   = errors.New("the registered agents must be read again")
	errStaleWorkers = errors.New("the workers must be read again")
	// errLockAccounts ends a transaction that must lock the accounts of several agents in their order.
	errLockAccounts = errors.New("the accounts must be locked first")
)

// unavailableError means that a worker is not available although the index says so.
type unavailableError struct{ agentID string }

func (e unavailableError) Error() string { return "the worker " + e.agentID + " is not available" }

// known states what earlier runs of an operation have found out: whether the agents and the workers in
// the index were updated, whether the accounts of all candidates must be locked first, and which agents
// are not available although the index says so.
type known struct {
	agents, workers, accounts bool
	unavailable               []string
}

// slotChange is an attempt that an operation has begun or ended.
type slotChange struct {
	agentID   string
	begun     *models.Task // nil for an attempt that has ended
	failure   Failure      // "" for a success or a cancellation
	cancelled bool
	policy    Policy
}

// transact runs fn in a transaction and wakes waiting goroutines after the commit. After
// any of the errors above it runs fn again, after it has updated the index if necessary.
func (o *Orchestrator) transact(ctx context.Context, fn func(*operation) error) error {
	var op *operation
	var found known
	var unavailable unavailableError
	run := func() error {
		err := o.ledger.Write(ctx, func(tx *store.Tx) error {
			op.releaseClaims() // claimed by an earlier run
			op = &operation{environment: &o.environment, tx: tx, known: found}
			err := fn(op)
			if err == nil {
				err = op.writeEvents()
			}
			if err == nil && op.beforeCommit != nil {
				if err = op.beforeCommit(); err == nil {
					err = op.writeEvents()
				}
			}
			return err
		})
		if err != nil {
			op.releaseClaims()
		}
		return err
	}
	for repeated := false; ; {
		err := run()
		switch {
		case err == nil:
			o.afterCommit(context.WithoutCancel(ctx), op)
			return nil
		case errors.Is(err, store.ErrRequestExists) && !repeated: // the other request has been committed
			repeated, err = true, nil
		case errors.Is(err, errStaleIndex):
			found.agents, err = true, o.waitForIndex(ctx)
		case errors.Is(err, errStaleWorkers):
			found.workers, err = true, o.refreshWorkers(ctx)
		case errors.Is(err, errLockAccounts):
			found.accounts, err = true, nil
		case errors.As(err, &unavailable): // the next runs have it in unavailable
			found.unavailable, err = append(found.unavailable, unavailable.agentID), nil
			defer func(id string) {
				if w, err := o.store.Workers(ctx).Get(id); err == nil {
					o.putWorker(w)
				}
			}(unavailable.agentID)
		}
		if err != nil {
			return err
		}
	}
}

func (op *operation) writeEvents() error {
	list := op.events
	op.events = nil
	return op.tx.Events().EmitAll(list)
}

// releaseClaims releases the slots that an uncommitted run has claimed.
func (op *operation) releaseClaims() {
	if op == nil {
		return
	}
	for _, c := range op.slots {
		if c.begun != nil {
			op.index.Release(c.agentID)
		}
	}
	op.slots = nil
}

// transactOnce is transact for a request with an idempotency key; the result of fn is the source
// of the stored response.
func (o *Orchestrator) transactOnce(ctx context.Context, once *models.Idempotency, fn func(*operation) (any, error)) error {
	return o.transact(ctx, func(op *operation) error {
		if once == nil {
			_, err := fn(op)
			return err
		}
		return op.tx.Idempotent(once, func() (any, error) { return fn(op) })
	})
}

// afterCommit updates the index of this replica and wakes waiting goroutines here and on other
// replicas.
func (o *Orchestrator) afterCommit(ctx context.Context, op *operation) {
	for _, fn := range op.commitHooks {
		fn(ctx)
	}
	for _, w := range op.changedWorkers {
		o.indexWorker(ctx, w)
		op.wakeAfterCommit(WakeWorker, w.AgentID)
	}
	o.timers.Set(op.deadline)
	for _, w := range op.wakes {
		o.waiters.Wake(w)
		if o.opts.Waker != nil && w.Kind != wakeups.End {
			o.opts.Waker.Wake(w.Kind, w.ID)
		}
	}
}

// wakeAfterCommit adds a wake-up that is sent after the commit.
func (op *operation) wakeAfterCommit(kind WakeKind, id string) {
	op.wakes = append(op.wakes, wakeups.Wake{Kind: kind, ID: id})
}

// lockTask locks and returns a task. An unknown id is errs.NotFound.
func (op *operation) lockTask(id string) (models.Task, error) {
	t, err := op.tx.Tasks().Lock(id)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no task %q", id)
	}
	return t, err
}

// saveTask writes a changed task and sets its timer.
func (op *operation) saveTask(before models.Task, t *models.Task) error {
	if err := op.tx.Tasks().Save(before, t); err != nil {
		return err
	}
	if before.MessageID != "" && t.MessageID != before.MessageID {
		op.tx.After(func() { op.acks.Remove(before.AgentID, before.MessageID) })
	}
	op.wakeAfterCommit(WakeTask, t.ID)
	if t.State.Ended() {
		return op.onTaskEnd(*t)
	}
	op.setTimer(*t)
	return nil
}

// setTimer schedules the timers for the deadline of a task.
func (op *operation) setTimer(t models.Task) {
	if op.deadline.IsZero() || t.Deadline.Before(op.deadline) {
		op.deadline = t.Deadline
	}
}

// onTaskEnd applies the effects of the end of a task.
func (op *operation) onTaskEnd(t models.Task) error {
	op.wakeAfterCommit(wakeups.End, t.ID)
	op.countEnd(t)
	if t.Subtasks > 0 {
		if err := op.cancelSubtasks(t.ID, "the parent task has ended"); err != nil {
			return err
		}
	}
	if err := op.leaveSession(t); err != nil {
		return err
	}
	if kind, key, shared := strings.Cut(t.OnEnd, "/"); kind != "" {
		if shared { // its job may be running for the end of another task now, and runs again then
			if err := op.tx.Jobs().Delete(kind, key); err != nil {
				return err
			}
		}
		if _, err := op.tx.Jobs().Enqueue(store.Job{Kind: kind, Key: cmp.Or(key, t.ID)}); err != nil {
			return err
		}
	}
	if t.OwnerAgent == "" && !op.tracesEnabled {
		return nil
	}
	in, err := op.tx.Tasks().Input(t)
	if err != nil {
		return err
	}
	op.traceTask(t, in)
	o, err := overrideOf(in)
	if err != nil || t.OwnerAgent == "" || !o.Notify {
		return err
	}
	return op.send(t.OwnerAgent, models.MessageTaskEnded, t, nil)
}

// send puts a message about a task into an agent's inbox. data is encoded as JSON, nil for none.
func (op *operation) send(agentID string, kind string, t models.Task, data map[string]string) error {
	m := models.InboxMessage{AgentID: agentID, Kind: kind, Priority: t.Priority, TaskID: t.ID, Attempt: t.Attempt}
	if kind == models.MessageCancel {
		m.Priority = MaxPriority
	}
	if data != nil {
		text, err := json.Marshal(data)
		if err != nil {
			return err
		}
		m.Data = text
	}
	op.wakeAfterCommit(WakeInbox, agentID)
	_, err := op.tx.Inbox().Enqueue(m)
	return err
}

// emitTaskEvent emits an event about a task. The caller must save the task next.
func (op *operation) emitTaskEvent(kind models.EventType, t models.Task, set func(*events.TaskData)) {
	version := t.Version + 1 // the version that the next save makes
	if t.ID == op.insertingID {
		version = t.Version
	}
	data := events.TaskData{
		TaskID: t.ID, SessionID: t.SessionID, State: t.State, WaitingFor: t.WaitingFor, Attempt: t.Attempt, AgentID: t.AgentID, OwnerAgent: t.OwnerAgent,
		Progress: t.Progress, Version: version,
	}
	if set != nil {
		set(&data)
	}
	op.emit(kind, t.ID, data)
}

// emit emits an event about a row that the operation has locked or writes.
func (op *operation) emit(kind models.EventType, key string, data any) {
	op.events = append(op.events, store.EventDraft{Type: kind, Key: key, Data: data})
}

// overrideOf returns what the task sets differently from its class.
func overrideOf(in models.TaskInput) (Override, error) {
	var o Override
	err := json.Unmarshal(in.Policy, &o)
	return o, err
}

// selectionRequest returns what the task requires of an agent.
func selectionRequest(depth int, in models.TaskInput, p Policy, exclude []string) selection.Request {
	return selection.Request{
		Depth: depth, MaxDepth: p.MaxDepth,
		Capabilities: in.Capabilities, AgentType: in.AgentType, SphereID: in.Sphere, AgentID: in.RequestedAgentID,
		Exclude: exclude, Threshold: p.Threshold, Weighted: p.Weighted,
	}
}

// unsupportedError is the error for work that no agent offers.
func (e *environment) unsupportedError(in models.TaskInput) error {
	text, id := selection.Requirements(in, "offers"), in.RequestedAgentID
	if a, _ := e.index.Agent(id); id != "" && a.Version == 0 {
		text = fmt.Sprintf("there is no agent %q", id)
	}
	supported := e.index.CapabilitiesOf(in.AgentType)
	for _, name := range in.Capabilities {
		if key := models.CapabilityKey(name); !slices.Contains(supported, key) {
			text += input.DidYouMean(key, supported)
		}
	}
	return errs.New(errs.UnsupportedWork, "%s", text).With("requested", in.Capabilities).
		With("supported", e.CapabilitiesOf(in.AgentType))
}
