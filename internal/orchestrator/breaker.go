package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/models"
)

// breakerKind is the kind of the job that asks a worker for a sign of life when the
// pause of its breaker is over.
const breakerKind = "worker.breaker"

// openBreaker keeps new work from a worker whose line failed too often in a row
// (Chiffon §Timeouts). What it has goes on.
func (op *operation) openBreaker(w *models.Worker, p Policy) error {
	w.BreakerUntil, w.Probing = op.tx.Now().Add(p.BreakerPause), false
	if err := op.tx.DeleteJob(breakerKind, w.AgentID); err != nil {
		return err
	}
	if _, err := op.tx.Enqueue(models.Job{Kind: breakerKind, Key: w.AgentID, RunAt: w.BreakerUntil}); err != nil {
		return err
	}
	op.count(func(c *counters) { c.breakers.Inc() })
	return op.tx.Emit(models.EventBreakerOpened, w.AgentID, models.BreakerOpened{AgentID: w.AgentID, Failures: w.Failures, Until: w.BreakerUntil})
}

// probeWorker asks for a sign of life: no task is the probe, so whoever holds the worker's
// line pings it, or the next heartbeat closes the breaker.
func (o *Orchestrator) probeWorker(ctx context.Context, job *jobs.Job) error {
	return o.transact(ctx, func(op *operation) error {
		w, err := op.tx.Worker(job.Key) // before its job, as where the breaker opens
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
