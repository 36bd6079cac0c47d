package orchestrator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/orchestrator/metrics"
	"comet/internal/orchestrator/selection"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// MaxConcurrency is the maximum number of attempts that a worker does at the same time.
const MaxConcurrency = 1000

// JoinRequest describes an agent that connects as a worker.
type JoinRequest struct {
	Protocol  string
	Transport string
	// MaxDepth is the depth from which on it accepts no hand-offs, 1 to 6, 0 for the policy's.
	MaxDepth int
	// ProtocolVersion is the version of the protocol, "" for the newest one.
	ProtocolVersion string
	// ConnectionID is a NewConnectionID, so that the end of an older connection does not disconnect
	// the agent from a newer one; "" for a transport without connections.
	ConnectionID string
	// Concurrency is the number of attempts that it does at the same time, default 1.
	Concurrency int
}

// NewConnectionID returns the id of a new connection to this process, which it names.
func (o *Orchestrator) NewConnectionID() string { return o.store.Process() + "/" + uuid.NewString() }

// Join makes an agent a worker, or brings it online again. It returns errs.NotFound for an
// unknown agent and errs.AgentInactive for a deactivated one.
func (o *Orchestrator) Join(ctx context.Context, agentID string, j JoinRequest) (out models.Worker, err error) {
	j.Concurrency = cmp.Or(j.Concurrency, 1)
	if j.Concurrency < 1 || j.Concurrency > MaxConcurrency {
		return out, errs.New(errs.InvalidRequest, "concurrency must be 1 to %d, not %d", MaxConcurrency, j.Concurrency)
	}
	agent, err := o.store.Agents(ctx).Get(agentID)
	if err != nil {
		return out, err
	}
	if !agent.IsActive {
		return out, errs.New(errs.AgentInactive, "the agent %q is deactivated", agentID)
	}
	err = o.transact(ctx, func(op *operation) error {
		w, err := op.tx.Workers().Lock(agentID)
		if errs.Is(err, errs.NotFound) {
			w, err = models.Worker{AgentID: agentID}, nil
		}
		if err != nil {
			return err
		}
		before := w
		w.State, w.Protocol, w.ProtocolVersion, w.Transport, w.ConnectionID, w.Concurrency = models.WorkerOnline, j.Protocol, j.ProtocolVersion, j.Transport, j.ConnectionID, j.Concurrency
		w.MaxDepth = j.MaxDepth
		op.recordHeartbeat(&w)
		if err := op.saveWorker(&w, before); err != nil {
			return err
		}
		out = w
		return nil
	})
	return out, err
}

// Heartbeat is a heartbeat of a worker.
type Heartbeat struct {
	// State is "" to keep the state; an offline worker then becomes online.
	State models.WorkerState
	// Load is in percent, nil for unknown.
	Load *int
	// Present makes Heartbeat return errs.NotFound for an offline agent instead.
	Present bool
}

// Heartbeat records a heartbeat. It returns errs.NotFound for an agent that has not joined.
func (o *Orchestrator) Heartbeat(ctx context.Context, agentID string, h Heartbeat) (out models.Worker, err error) {
	err = o.transact(ctx, func(op *operation) error {
		w, err := op.tx.Workers().Lock(agentID)
		if err != nil {
			return err
		}
		before := w
		if h.Present && w.State == models.WorkerOffline {
			return errs.New(errs.NotFound, "the agent %q is offline", agentID)
		}
		if h.State != "" {
			w.State = h.State
		} else if w.State == models.WorkerOffline {
			w.State = models.WorkerOnline
		}
		if h.Load != nil {
			w.Load = min(max(*h.Load, 0), 100)
		}
		op.recordHeartbeat(&w)
		out = w
		return op.saveWorker(&out, before)
	})
	return out, err
}

// Disconnect records the end of a connection. Its agent becomes offline unless it has a newer
// connection. Other agents get its attempts if it has not joined again after Options.ReturnGrace.
func (o *Orchestrator) Disconnect(ctx context.Context, agentID, connectionID string) error {
	return o.transact(ctx, func(op *operation) error {
		w, err := op.setOffline(agentID, func(w models.Worker) bool { return w.ConnectionID == connectionID })
		o.addSlots(&w)
		if err != nil || w.ConnectionID != connectionID || w.InFlight == 0 {
			return err
		}
		return op.schedule(lostKind, agentID, op.tx.Now().Add(o.opts.ReturnGrace))
	})
}

// endLostAttempts gives the attempts of an agent without a connection to others. An attempt continues
// as long as no other agent can have the task; the job then runs again.
func (o *Orchestrator) endLostAttempts(ctx context.Context, job *jobs.Job) error {
	if w, err := o.store.Workers(ctx).Get(job.Key); err != nil || w.State != models.WorkerOffline {
		return err
	}
	r := attemptEnd{state: models.AttemptTimedOut, failure: FailureLost, text: "the agent has lost its connection", outcome: usage.OutcomeTimeout}
	since := o.store.Now().Sub(time.UnixMicro(o.availableSince.Load())) // after a start or an outage, agents need time to connect
	if since >= o.opts.ReturnGrace {
		if kept, err := o.failOpenAttempts(ctx, job.Key, r); err != nil || !kept {
			return err
		}
	}
	return o.transact(ctx, func(op *operation) error {
		if err := job.Finish(op.tx); err != nil {
			return err
		}
		return op.schedule(lostKind, job.Key, op.tx.Now().Add(o.opts.ReturnGrace))
	})
}

// schedule enqueues a job at a time, in place of an earlier one with the same key.
func (op *operation) schedule(kind, key string, at time.Time) error {
	if err := op.tx.Jobs().Delete(kind, key); err != nil {
		return err
	}
	_, err := op.tx.Jobs().Enqueue(store.Job{Kind: kind, Key: key, RunAt: at})
	return err
}

// Leave makes an agent offline. Its attempts continue until they end or time out; if gone is set,
// they fail at once.
func (o *Orchestrator) Leave(ctx context.Context, agentID string, gone bool) error {
	err := o.setOffline(ctx, agentID, func(models.Worker) bool { return true })
	if err != nil || !gone {
		return err
	}
	_, err = o.failOpenAttempts(ctx, agentID, attemptEnd{state: models.AttemptCancelled, failure: FailureUnavailable, text: "the agent left", outcome: usage.OutcomeFailed})
	return err
}

func (o *Orchestrator) setOffline(ctx context.Context, agentID string, still func(models.Worker) bool) error {
	return o.transact(ctx, func(op *operation) error {
		_, err := op.setOffline(agentID, still)
		return err
	})
}

// setOffline makes a worker, if it is known, offline if a condition still applies to it, and returns it.
func (op *operation) setOffline(agentID string, still func(models.Worker) bool) (models.Worker, error) {
	w, err := op.tx.Workers().Lock(agentID)
	if errs.Is(err, errs.NotFound) {
		return w, nil
	}
	if err != nil || w.State == models.WorkerOffline || !still(w) {
		return w, err
	}
	before := w
	w.State = models.WorkerOffline
	err = op.saveWorker(&w, before)
	return w, err
}

// KeepAlive records heartbeats of agents connected to this process, in one transaction. It returns
// those that are offline nevertheless and have to join again.
func (o *Orchestrator) KeepAlive(ctx context.Context, agentIDs []string) (offline []string, err error) {
	if len(agentIDs) == 0 {
		return nil, nil
	}
	var others []string
	err = o.store.Write(ctx, func(tx *store.Tx) error {
		others, err = tx.Workers().Touch(slices.Sorted(slices.Values(agentIDs)))
		return err
	})
	for _, id := range others {
		if err != nil {
			break
		}
		if _, err = o.Heartbeat(ctx, id, Heartbeat{Present: true}); errs.Is(err, errs.NotFound) {
			offline, err = append(offline, id), nil
		}
	}
	return offline, err
}

// failOpenAttempts ends the open attempts of a worker. If it is lost, kept reports that attempts
// continue because no other agent can have their tasks; those of a worker that is back continue too.
func (o *Orchestrator) failOpenAttempts(ctx context.Context, agentID string, r attemptEnd) (kept bool, err error) {
	open, err := o.store.Tasks(ctx).OpenOf(agentID, MaxConcurrency)
	for _, id := range open {
		if err != nil {
			break
		}
		keeps := false
		err = o.transact(ctx, func(op *operation) error {
			t, err := op.tx.Tasks().Lock(id)
			if err != nil || t.State.Ended() || t.AgentID != agentID || t.WaitingFor == models.WaitForWorker || t.WaitingFor == models.WaitForRetry {
				return err
			}
			before := t
			in, p, err := op.lockForEnd(t)
			if err == nil && r.failure == FailureLost {
				if keeps, err = op.keepsLost(t, in, p); keeps || err != nil {
					return err
				}
			}
			if err == nil {
				err = op.failAttempt(&t, r, p)
			}
			if err != nil {
				return err
			}
			return op.saveTask(before, &t)
		})
		kept = kept || keeps
	}
	return kept, err
}

// keepsLost reports whether the attempt of a lost agent continues: it is back, or no other agent can
// have the task.
func (op *operation) keepsLost(t models.Task, in models.TaskInput, p Policy) (bool, error) {
	w, err := op.tx.Workers().Get(t.AgentID)
	if err != nil || w.State != models.WorkerOffline {
		return true, err
	}
	siblings, err := op.siblingAgents(t)
	v := op.index.Select(selectionRequest(t.Depth, in, p, append(siblings, t.AgentID))).Verdict
	return v != selection.Chosen && v != selection.Saturated, err
}

// recordHeartbeat records that a worker is alive, and closes its breaker after the pause.
func (op *operation) recordHeartbeat(w *models.Worker) {
	now := op.tx.Now()
	w.LastSeenAt = now
	if !w.BreakerUntil.IsZero() && !now.Before(w.BreakerUntil) {
		w.BreakerUntil, w.Probing, w.Failures = time.Time{}, false, 0
	}
}

// saveWorker writes a worker and emits an event if it has connected or disconnected, or its concurrency has changed. A
// worker that becomes busy or free emits no event, because its tasks emit events.
func (op *operation) saveWorker(w *models.Worker, before models.Worker) error {
	if err := op.tx.Workers().Save(w); err != nil {
		return err
	}
	op.indexAfterCommit(*w)
	if w.State == models.WorkerOnline {
		op.wakeAfterCommit(WakeQueue, "")
	}
	if offline := models.WorkerOffline; (w.State == offline) == (cmp.Or(before.State, offline) == offline) && w.Concurrency == before.Concurrency {
		return nil
	}
	op.emit(events.WorkerChanged, w.AgentID, events.WorkerData{
		AgentID: w.AgentID, State: w.State, PreviousState: before.State, Protocol: w.Protocol, Transport: w.Transport, Concurrency: w.Concurrency,
	})
	return nil
}

// indexAfterCommit updates a changed worker in the index after the commit, on SQLite before the
// next transaction begins.
func (op *operation) indexAfterCommit(w models.Worker) {
	op.changedWorkers = append(op.changedWorkers, w)
	op.tx.After(func() { op.putWorker(w) })
}

const (
	breakerKind = "worker.breaker" // a job that runs when the pause of a breaker ends
	lostKind    = "worker.lost"    // a job that ends the attempts of an agent that has not returned
)

// openBreaker stops new assignments to a worker that failed too often in a row (Chiffon §Timeouts).
// Its attempts continue.
func (op *operation) openBreaker(w *models.Worker, p Policy) error {
	w.BreakerUntil, w.Probing = op.tx.Now().Add(p.BreakerPause), false
	if err := op.schedule(breakerKind, w.AgentID, w.BreakerUntil); err != nil {
		return err
	}
	op.count(func(c *metrics.Counters) { c.Breakers.Inc() })
	op.emit(events.BreakerOpened, w.AgentID, map[string]any{"agent_id": w.AgentID, "failures": w.Failures, "until": w.BreakerUntil})
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
		return op.saveWorker(&w, w)
	})
}

// Workers returns up to limit workers ordered by agent id, after the id after, "" for the first: the
// agent root and those below it, all for "".
func (o *Orchestrator) Workers(ctx context.Context, root, after string, limit int) ([]models.Worker, error) {
	all, err := o.store.Workers(ctx).List(root, after, limit)
	for i := range all {
		o.addSlots(&all[i])
	}
	return all, err
}

// Worker returns the worker of an agent, or errs.NotFound if it never joined.
func (o *Orchestrator) Worker(ctx context.Context, agentID string) (models.Worker, error) {
	w, err := o.store.Workers(ctx).Get(agentID)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no worker %q", agentID)
	}
	o.addSlots(&w)
	return w, err
}

// addSlots sets the fields of a worker that only the index has (SQLite).
func (o *Orchestrator) addSlots(w *models.Worker) {
	if o.opts.Alone {
		now := o.index.Worker(w.AgentID)
		w.InFlight, w.LastAssignedAt = now.InFlight, now.LastAssignedAt
	}
}
