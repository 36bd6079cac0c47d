package orchestrator

import (
	"context"
	"time"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
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

// replayFor is how long a request_id and the id of a message are remembered.
const replayFor = 24 * time.Hour

// purgeBatch bounds how long one purging transaction keeps the other writers.
const purgeBatch = 500

// Purge deletes what is not kept any longer: tasks and sessions that ended before
// Options.Retention, lines that were said before it, requests and messages that cannot be
// repeated any more, and what nobody took in a day of what was told to many.
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
