package orchestrator

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

const (
	// maxAssignedTogether is how many tasks of a queue are assigned in one transaction.
	maxAssignedTogether = 32
	// refreshOverlap is how far back changed workers are read again: clocks of replicas differ,
	// and a commit may be later than the times in its rows.
	refreshOverlap = 10 * time.Second
	// reindexInterval is how often all agents are read again, for changes without an event.
	reindexInterval = time.Minute
)

// run updates the index, assigns queued tasks and detects silent workers until ctx ends.
func (o *Orchestrator) run(ctx context.Context) {
	queue, stop := o.waiters.subscribe(WakeQueue, "")
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
			o.logFailure(ctx, "reading the workers", o.refreshWorkers(ctx))
			o.logFailure(ctx, "looking for silent workers", o.markSilentOffline(ctx))
			o.logFailure(ctx, "closing idle sessions", o.closeIdleSessions(ctx))
		}
		o.logFailure(ctx, "assigning queued tasks", o.serveQueues(ctx))
		select {
		case <-ctx.Done():
		case <-queue:
			due = false
		case <-tick.C:
			due = true
		}
	}
}

// logFailure logs an error, unless ctx has ended, and reports whether there was none.
func (o *Orchestrator) logFailure(ctx context.Context, what string, err error) bool {
	if err != nil && ctx.Err() == nil {
		o.log.WarnContext(ctx, what+" failed", "error", err)
	}
	return err == nil
}

// markSilentOffline marks workers as offline that were silent for OfflineAfter. Their attempts
// continue until their own deadlines.
func (o *Orchestrator) markSilentOffline(ctx context.Context) error {
	before := o.store.Now().Add(-o.opts.OfflineAfter)
	if before.Before(time.UnixMicro(o.startedAt.Load())) {
		return nil // they may have sent heartbeats while no server ran
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

// replayFor is how long request ids and message ids are remembered.
const replayFor = 24 * time.Hour

// purgeBatch limits the duration of one purging transaction.
const purgeBatch = 500

// Purge deletes expired rows: tasks and sessions that ended before Options.Retention and logged
// messages as old, request ids and message ids that cannot be repeated any more, and broadcasts
// that were pending for a day.
func (o *Orchestrator) Purge(ctx context.Context) error {
	ended, replayed := o.store.Now().Add(-o.opts.Retention), o.store.Now().Add(-replayFor)
	for _, purge := range []func(tx *store.Tx) (int64, error){
		func(tx *store.Tx) (int64, error) { return tx.PurgeTasks(ended, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeSessions(ended, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeContexts(ended, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeLoggedMessages(ended, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeRequests(replayed, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeProcessedMessages(replayed, purgeBatch) },
		func(tx *store.Tx) (int64, error) { return tx.PurgeNotices(replayed, purgeBatch) },
	} {
		for more := true; more; {
			err := o.store.Write(ctx, func(tx *store.Tx) error {
				n, err := purge(tx)
				more = n > 0
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
