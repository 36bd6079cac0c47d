package orchestrator

import (
	"context"
	"sync"
	"time"

	"comet/internal/background"
	"comet/internal/jobs"
	"comet/internal/orchestrator/metrics"
	"comet/internal/orchestrator/selection"
	"comet/internal/orchestrator/wakeups"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

const (
	// maxAssignedTogether is the number of tasks of a queue that one transaction assigns.
	maxAssignedTogether = 32
	// reindexInterval is the interval of reading all agents, for changes without an event.
	reindexInterval = time.Minute
)

// New returns an orchestrator whose tasks spend from the ledger.
func New(s *store.Store, ledger *usage.Ledger, opts *Options) *Orchestrator {
	o := &Orchestrator{store: s, gauges: newGauges(), environment: environment{
		ledger: ledger, opts: opts.orDefaults(), index: selection.New(),
		queues: newQueueCache(), counters: metrics.NewCounters(), timers: &wakeups.Timers{Changed: background.NewSignal()}, acks: wakeups.NewAcks(), waiters: wakeups.NewWaiters(), tracesEnabled: opts != nil && opts.Tracer != nil,
	}}
	o.log, o.waitLimit = o.opts.Logger, background.NewLimiter[string](o.opts.MaxWaiters, o.opts.MaxWaitersPerToken)
	o.registryStale.Store(1)
	o.availableSince.Store(s.Now().UnixMicro())
	o.failures = background.NewFailureLog(o.log)
	o.Loop = background.NewLoop(o.run)
	if o.opts.Registry != nil {
		o.opts.Registry.OnChange(o.indexAgent)
	}
	return o
}

// RegisterJobs registers the handlers of the orchestrator's jobs.
func (o *Orchestrator) RegisterJobs(r *jobs.Runner) {
	r.Handle(subtaskKind, o.updateParent, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Handle(lostKind, o.endLostAttempts, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Handle(breakerKind, o.probeWorker, jobs.Policy{MaxBackoff: 10 * time.Second})
}

// run polls, and follows the registry, until ctx ends.
func (o *Orchestrator) run(ctx context.Context) {
	o.availableSince.Store(o.store.Now().UnixMicro())
	queue, stop := o.waiters.Subscribe(WakeQueue, "")
	defer stop()
	var loops sync.WaitGroup
	defer loops.Wait()
	timers := background.NewPollLoop(background.PollOptions{Task: "running the timers of tasks", Logger: o.log, Signal: o.timers.Changed}, o.runTimers)
	loops.Go(func() { timers.Run(ctx) })
	if o.opts.Feed != nil {
		follow := background.NewPollLoop(background.PollOptions{Task: "following the registry", Logger: o.log}, o.followRegistry)
		loops.Go(func() { follow.Run(ctx) })
	}
	background.NewPollLoop(background.PollOptions{Task: "assigning tasks", Logger: o.log, Signal: queue}, o.poll).Run(ctx)
}

// poll updates the index, detects silent workers and assigns queued tasks. A step that fails does
// not prevent the others.
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
		o.failures.Report(ctx, "writing acknowledgements", o.FlushAcknowledgements(ctx, o.acks.Due(o.store.Now())...))
	}
	if o.indexLoaded.Load() {
		o.failures.Report(ctx, "assigning queued tasks", o.serveQueues(ctx))
	}
	return o.opts.Poll - time.Since(o.refreshedAt), nil
}

// markSilentOffline marks workers as offline that were silent for OfflineAfter. Their attempts
// continue until their own deadlines.
func (o *Orchestrator) markSilentOffline(ctx context.Context) error {
	before := o.store.Now().Add(-o.opts.OfflineAfter)
	if before.Before(time.UnixMicro(o.availableSince.Load())) {
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

// replayFor is the time for which message ids are remembered. Request ids are remembered as long as
// their tasks are kept, but at least for this time.
const replayFor = 24 * time.Hour

// Purge deletes expired rows: tasks and sessions that ended before Options.Retention, remembered
// message ids, and broadcasts that were pending for a day.
func (o *Orchestrator) Purge(ctx context.Context) error {
	ended, replayed := o.store.Now().Add(-max(o.opts.Retention, replayFor)), o.store.Now().Add(-replayFor)
	return o.store.InBatches(ctx,
		func(tx *store.Tx, limit int) (int64, error) { return tx.Tasks().Purge(ended, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return tx.Sessions().Purge(ended, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return tx.Inbox().PurgeProcessed(replayed, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return tx.Inbox().PurgeNotices(replayed, limit) },
	)
}
