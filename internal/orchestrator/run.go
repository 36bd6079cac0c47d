package orchestrator

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
)

const (
	// maxAssignedTogether is how many tasks of a line are given away in one transaction.
	maxAssignedTogether = 32
	// refreshOverlap is how far back changes of workers are read again: clocks of replicas
	// differ, and a commit may come later than the time in its rows.
	refreshOverlap = 10 * time.Second
	// reindexInterval is how often the registered agents are read again as a whole, for what no
	// event has told.
	reindexInterval = time.Minute
)

// run keeps the index, serves the lines and notices who falls silent, until ctx ends.
func (o *Orchestrator) run(ctx context.Context) {
	line, stop := o.waiters.subscribe(WakeQueue, "")
	defer stop()
	tick := time.NewTicker(o.opts.Poll)
	defer tick.Stop()
	var filled time.Time
	for due := true; ctx.Err() == nil; {
		if want := o.registryStale.Load(); want != o.registryFresh.Load() || time.Since(filled) >= reindexInterval {
			if o.logFailure(ctx, "reading the agents", o.loadIndex(ctx)) {
				o.registryFresh.Store(want)
				filled = time.Now()
			}
		}
		if o.workersChanged.Swap(false) || due {
			o.logFailure(ctx, "following the workers", o.refreshWorkers(ctx))
			o.logFailure(ctx, "looking for silent workers", o.markSilentOffline(ctx))
			o.logFailure(ctx, "closing idle sessions", o.closeIdleSessions(ctx))
		}
		o.logFailure(ctx, "serving the lines", o.serveQueues(ctx))
		select {
		case <-ctx.Done():
		case <-line:
			due = false
		case <-tick.C:
			due = true
		}
	}
}

// logFailure logs an error that is not that of being stopped, and tells whether there was
// none.
func (o *Orchestrator) logFailure(ctx context.Context, what string, err error) bool {
	if err != nil && ctx.Err() == nil {
		o.log.WarnContext(ctx, what+" failed and is tried again", "error", err)
	}
	return err == nil
}

// maxSkipped is how many tasks that only a budget keeps from being done are passed over
// for those behind them.
const maxSkipped = 16

// assignNext gives the first task of a line to somebody; more tells whether it is worth
// looking again. One whose budget those who are free do not cover does not hold up the
// line.
func (op *operation) assignNext(route string) (more bool, err error) {
	var passed []string
	for len(passed) <= maxSkipped {
		t, found, err := op.tx.NextQueuedTask(route, passed...)
		if err != nil || !found {
			return false, err
		}
		op.overBudget = false
		more, err := op.assignQueued(route, t)
		if err != nil || more || !op.overBudget {
			return more, err
		}
		passed = append(passed, t.ID)
	}
	return false, nil
}

// assignQueued gives a task that waits to somebody, and reports whether it waits no more.
func (op *operation) assignQueued(route string, t models.Task) (bool, error) {
	in, p, err := op.lockForEnd(t)
	if err != nil {
		return false, err
	}
	siblings, err := op.siblingAgents(t, in)
	if err != nil {
		return false, err
	}
	needs := selectionRequest(t.Depth, in, p, siblings)
	op.queues.requests.Add(route, needs)
	if !canLeaveQueue(op.index.Select(needs).Verdict) {
		return false, nil // nothing has changed for it
	}
	before := t
	exclude, err := op.agentsToAvoid(t, p)
	if err != nil {
		return false, err
	}
	failure, err := op.assignOrQueue(&t, in, p, exclude)
	if err == nil && failure == "" && t.WaitingFor == models.WaitForWorker && len(exclude) > 0 { // nobody behind it shall wait for its preference
		failure, err = op.assignOrQueue(&t, in, p, nil)
	}
	if err == nil && failure != "" {
		err = op.failTask(&t, failure, assignFailureText(failure))
	}
	if err != nil || t.WaitingFor == models.WaitForWorker {
		return false, err
	}
	return true, op.saveTask(before, &t)
}

// markSilentOffline takes workers off the line that have shown no sign of life for too long. What
// they have goes on until its own deadline.
func (o *Orchestrator) markSilentOffline(ctx context.Context) error {
	before := o.store.Now().Add(-o.opts.OfflineAfter)
	if before.Before(time.UnixMicro(o.startedAt.Load())) {
		return nil // while nobody was here to hear them, they were not silent
	}
	ids, err := o.store.SilentWorkers(ctx, before, 100)
	for _, id := range ids {
		if err != nil {
			break
		}
		err = o.transact(ctx, func(op *operation) error {
			w, err := op.tx.Worker(id)
			if errs.Is(err, errs.NotFound) || err == nil && (w.State == models.WorkerOffline || !w.LastSeenAt.Before(before)) {
				return nil
			}
			if err != nil {
				return err
			}
			was := w.State
			w.State = models.WorkerOffline
			return op.saveWorker(&w, was)
		})
	}
	return err
}
