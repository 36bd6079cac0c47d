package orchestrator

import (
	"context"
	"time"

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

// poll updates the index, detects silent workers and assigns queued tasks. A step that fails does not
// prevent the others.
func (o *Orchestrator) poll(ctx context.Context) (idle time.Duration, err error) {
	if want := o.registryStale.Load(); want != o.registryFresh.Load() || time.Since(o.reindexedAt) >= reindexInterval {
		err := o.loadIndex(ctx)
		if err == nil {
			o.registryFresh.Store(want)
			o.reindexedAt = time.Now()
		}
		o.failures.Report(ctx, "reading the agents", err)
	}
	if o.workersChanged.Swap(false) || time.Since(o.refreshedAt) >= o.opts.Poll {
		o.refreshedAt = time.Now()
		o.failures.Report(ctx, "reading the workers", o.refreshWorkers(ctx))
		o.failures.Report(ctx, "looking for silent workers", o.markSilentOffline(ctx))
		o.failures.Report(ctx, "closing idle sessions", o.closeIdleSessions(ctx))
	}
	o.failures.Report(ctx, "assigning queued tasks", o.serveQueues(ctx))
	return o.opts.Poll - time.Since(o.refreshedAt), nil
}

// markSilentOffline marks workers as offline that were silent for OfflineAfter. Their attempts
// continue until their own deadlines.
func (o *Orchestrator) markSilentOffline(ctx context.Context) error {
	before := o.store.Now().Add(-o.opts.OfflineAfter)
	if before.Before(time.UnixMicro(o.startedAt.Load())) {
		return nil // they may have sent heartbeats while no server ran
	}
	ids, err := o.store.Workers(ctx).Silent(before, 100)
	for _, id := range ids {
		if err != nil {
			break
		}
		err = o.setOffline(ctx, id, func(w models.Worker) bool { return w.LastSeenAt.Before(before) })
	}
	return err
}

// replayFor is how long request ids and message ids are remembered.
const replayFor = 24 * time.Hour

// Purge deletes expired rows: tasks and sessions that ended before Options.Retention, request ids and message ids that cannot be repeated any more, and broadcasts
// that were pending for a day.
func (o *Orchestrator) Purge(ctx context.Context) error {
	ended, replayed := o.store.Now().Add(-o.opts.Retention), o.store.Now().Add(-replayFor)
	for _, purge := range []func(tx *store.Tx, limit int) (int64, error){
		func(tx *store.Tx, limit int) (int64, error) { return tx.Tasks().Purge(ended, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return tx.Sessions().Purge(ended, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return tx.Tasks().PurgeRequests(replayed, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return tx.Inbox().PurgeProcessed(replayed, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return tx.Inbox().PurgeNotices(replayed, limit) },
	} {
		if _, err := o.store.InBatches(ctx, purge); err != nil {
			return err
		}
	}
	return nil
}
