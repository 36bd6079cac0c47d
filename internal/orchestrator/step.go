package orchestrator

import (
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/internal/orchestrator/selection"
	"comet/models"
	"comet/store"
)

// step is one run of one verb's transaction. It may be run again from the start, so
// everything it finds out is its own.
type step struct {
	*Orchestrator
	tx      *store.Tx
	wakes   []wake
	workers []models.Worker // changed
	armed   bool            // a timer was set
	// inserting is the task that does not exist yet.
	inserting string
	counts    []func(*counters)
	after     []func(context.Context) // what else follows the commit
	// remaining is the most that a budget has left of those that refused the task.
	remaining int64
	// overBudget is set when a budget refused a task; refusing are the agents whose did.
	overBudget bool
	refusing   []string
	// alone is a task that is known to have no part that has not ended.
	alone string
	// only are the workers that may be given something, nil for any; tried tells that one
	// was asked for a place, and is locked.
	only  []string
	tried bool
	// looked is set once it was looked for workers that are not known here yet.
	looked bool
}

// do runs a verb's transaction and wakes whom it concerns once it is committed.
func (o *Orchestrator) do(ctx context.Context, fn func(*step) error) error {
	var s *step
	err := o.ledger.Write(ctx, func(tx *store.Tx) error {
		s = &step{Orchestrator: o, tx: tx}
		return fn(s)
	})
	if err == nil {
		s.follow(context.WithoutCancel(ctx))
	}
	return err
}

// once is do for a verb with an Idempotency-Key; what fn returns is the answer's source.
func (o *Orchestrator) once(ctx context.Context, once *models.Idempotency, fn func(*step) (any, error)) error {
	return o.do(ctx, func(s *step) error {
		if once == nil {
			_, err := fn(s)
			return err
		}
		return s.tx.Idempotent(once, func() (any, error) { return fn(s) })
	})
}

// follow does what follows the commit: this replica's index knows at once, everybody
// else is woken.
func (s *step) follow(ctx context.Context) {
	for _, count := range s.counts {
		count(s.counters)
	}
	for _, fn := range s.after {
		fn(ctx)
	}
	for _, w := range s.workers {
		s.learn(ctx, w)
		s.wake(WakeWorker, w.AgentID)
	}
	for _, w := range s.wakes {
		s.hub.wake(w)
		if s.opts.Waker != nil && w.kind != WakeEnd {
			s.opts.Waker.Wake(w.kind, w.id)
		}
	}
}

// wake has somebody woken after the commit.
func (s *step) wake(kind WakeKind, id string) { s.wakes = append(s.wakes, wake{kind, id}) }

// task locks a task. Its error for an unknown one names it.
func (s *step) task(id string) (models.Task, error) {
	t, err := s.tx.Task(id)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no task %q", id)
	}
	return t, err
}

// save writes a task that has changed, and sets its timer.
func (s *step) save(before models.Task, t *models.Task) error {
	if err := s.tx.SaveTask(before, t); err != nil {
		return err
	}
	s.wake(WakeTask, t.ID)
	switch {
	case t.State.Ended():
		if err := s.tx.DeleteJob(timerKind, t.ID); err != nil {
			return err
		}
		return s.ended(*t)
	case t.WaitingFor != before.WaitingFor || t.Attempt != before.Attempt || t.Deadline.Before(before.Deadline):
		return s.arm(*t)
	}
	return nil // a timer that comes too early is set again
}

// ended does what follows the end of a task.
func (s *step) ended(t models.Task) error {
	s.wake(WakeEnd, t.ID)
	s.countEnd(t)
	if s.alone != t.ID {
		if err := s.cancelParts(t.ID, "what it was for has ended"); err != nil {
			return err
		}
	}
	if err := s.leaveSession(t); err != nil || t.OwnerAgent == "" && t.ParentID == nil && !s.tracing() {
		return err
	}
	in, err := s.tx.TaskInput(t.ID)
	if err != nil {
		return err
	}
	s.traceTask(t, in)
	o, err := override(in)
	if err == nil && o.Subtask {
		_, err = s.tx.Enqueue(models.Job{Kind: subtaskKind, Key: t.ID})
	}
	if err != nil || t.OwnerAgent == "" || !o.Notify {
		return err
	}
	s.wake(WakeInbox, t.OwnerAgent)
	_, err = s.tx.EnqueueMessage(models.InboxMessage{AgentID: t.OwnerAgent, Kind: models.MessageTaskEnded, Priority: t.Priority, TaskID: t.ID, Attempt: t.Attempt})
	return err
}

// arm sets the one timer of a task to its deadline.
func (s *step) arm(t models.Task) error {
	if err := s.tx.DeleteJob(timerKind, t.ID); err != nil {
		return err
	}
	s.armed = true
	_, err := s.tx.Enqueue(models.Job{Kind: timerKind, Key: t.ID, RunAt: t.Deadline})
	return err
}

// emit writes an event about a task that is saved next.
func (s *step) emit(kind models.EventType, t models.Task, set func(*models.TaskChanged)) error {
	version := t.Version + 1 // that of the save which follows
	if t.ID == s.inserting {
		version = t.Version
	}
	data := models.TaskChanged{
		TaskID: t.ID, SessionID: t.SessionID, State: t.State, WaitingFor: t.WaitingFor, Attempt: t.Attempt, AgentID: t.AgentID, OwnerAgent: t.OwnerAgent,
		Progress: t.Progress, Version: version,
	}
	if set != nil {
		set(&data)
	}
	return s.tx.Emit(kind, t.ID, data)
}

// override is what the task has differently from its class.
func override(in models.TaskInput) (Override, error) {
	var o Override
	err := json.Unmarshal(in.Policy, &o)
	return o, err
}

// request is what the task needs of an agent.
func request(depth int, in models.TaskInput, p Policy, exclude []string) selection.Request {
	return selection.Request{
		Depth: depth, MaxDepth: p.MaxDepth,
		Capabilities: in.Capabilities, Type: in.AgentType, Sphere: in.Sphere, Agent: in.RequestedAgentID,
		Exclude: exclude, Threshold: p.Threshold, Rank: p.Rank,
	}
}

// unsupported is the error for work that nobody offers.
func (o *Orchestrator) unsupported(in models.TaskInput) error {
	e := errs.New(errs.UnsupportedWork, "no agent offers %s", needs(in)).With("requested", in.Capabilities)
	return e.With("supported", o.CapabilitiesOf(in.AgentType))
}
