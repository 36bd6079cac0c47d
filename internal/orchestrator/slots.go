package orchestrator

import (
	"cmp"
	"context"
	"slices"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/models"
	"comet/store"
)

// slotChange is an attempt that an operation has begun or ended.
type slotChange struct {
	agentID string
	begun   *models.Task // nil for an attempt that has ended
	end     attemptEnd
	policy  Policy
}

// unavailableError means that a worker is not available although the index says so. worker is its row.
type unavailableError struct{ worker models.Worker }

func (e unavailableError) Error() string {
	return "the worker " + e.worker.AgentID + " is not available"
}

// takeSlot takes a slot of an agent in the index for an attempt at a task; ok is false if it has none. A
// process that is alone reads here whether the agent is online and active; with replicas, changeSlots
// finds out.
func (op *operation) takeSlot(t *models.Task, agentID string) (ok bool, err error) {
	if op.opts.Alone {
		if ok, err = op.tx.Workers().Available(agentID); err != nil || !ok {
			return false, err
		}
	}
	if slices.Contains(op.known.unavailable, agentID) || !op.index.Claim(agentID, op.tx.Now()) {
		return false, nil
	}
	t.AgentID = agentID
	begun := *t
	op.slots = append(op.slots, slotChange{agentID: agentID, begun: &begun})
	return true, nil
}

// releaseSlot releases the slot of an attempt that has ended.
func (op *operation) releaseSlot(agentID string, end attemptEnd, p Policy) {
	op.wakeAfterCommit(WakeQueue, "")
	if op.opts.Alone {
		op.tx.After(func() { op.index.Release(agentID) })
		if !end.failure.countsForBreaker() && op.index.Worker(agentID).Failures == 0 {
			return // nothing changes in its row
		}
	}
	op.slots = append(op.slots, slotChange{agentID: agentID, end: end, policy: p})
}

// changeSlots writes the rows of the workers whose attempts have begun or ended, in the order in which
// all operations lock several workers. It runs last, so that the rows are locked only briefly. An
// unavailableError makes transact run the operation again.
func (op *operation) changeSlots() error {
	slices.SortStableFunc(op.slots, func(a, b slotChange) int { return cmp.Compare(a.agentID, b.agentID) })
	for first := 0; first < len(op.slots); {
		next := first
		for next < len(op.slots) && op.slots[next].agentID == op.slots[first].agentID {
			next++
		}
		if err := op.changeSlotsOf(op.slots[first].agentID, op.slots[first:next]); err != nil {
			return err
		}
		first = next
	}
	return nil
}

func (op *operation) changeSlotsOf(agentID string, changes []slotChange) error {
	begun, ended, answered := 0, 0, false
	var failed []slotChange
	for _, c := range changes {
		switch {
		case c.begun == nil:
			ended++
			answered = answered || c.end.failure != "" || c.end.state != models.AttemptCancelled // a cancellation tells nothing about the connection
			if c.end.failure.countsForBreaker() {
				failed = append(failed, c)
			}
		case !op.opts.Alone: // the index of a process that is alone has it
			begun++
		}
	}
	if begun+ended == 0 {
		return nil
	}
	w, ok, err := op.tx.Workers().ChangeSlots(agentID, begun, ended, answered && len(failed) == 0)
	for _, c := range changes { // with the lock: another replica may have assigned another subtask to the agent
		if err != nil || c.begun == nil || op.opts.Alone {
			continue
		}
		var siblings []string
		siblings, err = op.siblingAgents(*c.begun)
		ok = ok && !slices.Contains(siblings, agentID)
	}
	switch {
	case err != nil:
		return err
	case !ok:
		if w, err = op.tx.Workers().Get(agentID); err == nil {
			err = unavailableError{w}
		}
		return err
	case len(failed) == 0:
		op.indexAfterCommit(w)
		return nil
	}
	for _, c := range failed {
		if w.Failures++; w.Failures >= c.policy.BreakerFailures && w.BreakerUntil.IsZero() {
			if err := op.openBreaker(&w, c.policy); err != nil {
				return err
			}
		}
	}
	return op.saveWorker(&w, w.State)
}

// breakerKind is the kind of the job that runs when the pause of a breaker is over.
const breakerKind = "worker.breaker"

// openBreaker stops new assignments to a worker that failed too often in a row (Chiffon §Timeouts).
// Its attempts continue.
func (op *operation) openBreaker(w *models.Worker, p Policy) error {
	w.BreakerUntil, w.Probing = op.tx.Now().Add(p.BreakerPause), false
	if err := op.tx.Jobs().Delete(breakerKind, w.AgentID); err != nil {
		return err
	}
	if _, err := op.tx.Jobs().Enqueue(store.Job{Kind: breakerKind, Key: w.AgentID, RunAt: w.BreakerUntil}); err != nil {
		return err
	}
	op.count(func(c *counters) { c.breakers.Inc() })
	op.emit(events.BreakerOpened, w.AgentID, breakerOpened{AgentID: w.AgentID, Failures: w.Failures, Until: w.BreakerUntil})
	return nil
}

// probeWorker requests a heartbeat: the transport pings the worker, or its next heartbeat closes
// the breaker. No task is used as a probe.
func (o *Orchestrator) probeWorker(ctx context.Context, job *jobs.Job) error {
	return o.transact(ctx, func(op *operation) error {
		w, err := op.tx.Workers().Lock(job.Key) // before its job, as in openBreaker
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		if e := job.Finish(op.tx); e != nil || err != nil || w.BreakerUntil.IsZero() {
			return e
		}
		w.Probing = true
		op.wakeAfterCommit(WakeInbox, w.AgentID)
		return op.saveWorker(&w, w.State)
	})
}
