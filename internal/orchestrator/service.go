package orchestrator

import (
	"context"
	"sync"
	"time"

	"comet/internal/background"
	"comet/internal/jobs"
	"comet/internal/orchestrator/selection"
	"comet/internal/usage"
	"comet/store"
)

// New returns an orchestrator whose tasks spend from the ledger.
func New(s *store.Store, ledger *usage.Ledger, opts *Options) *Orchestrator {
	o := &Orchestrator{store: s, waiters: newWaiters(), gauges: newGauges(), environment: environment{
		ledger: ledger, opts: opts.orDefaults(), index: selection.New(),
		queues: newQueueCache(), counters: newCounters(), tracesEnabled: opts != nil && opts.Tracer != nil,
	}}
	o.log, o.waitLimit = o.opts.Logger, background.NewLimiter[string](o.opts.MaxWaiters, o.opts.MaxWaitersPerToken)
	o.registryStale.Store(1)
	o.startedAt.Store(s.Now().UnixMicro())
	o.failures = background.NewFailureLog(o.log)
	o.Loop = background.NewLoop(o.run)
	return o
}

// run polls, and follows the registry, until ctx ends.
func (o *Orchestrator) run(ctx context.Context) {
	o.startedAt.Store(o.store.Now().UnixMicro())
	queue, stop := o.waiters.subscribe(WakeQueue, "")
	defer stop()
	var followers sync.WaitGroup
	defer followers.Wait()
	if o.opts.Feed != nil {
		follow := background.NewPollLoop(background.PollOptions{Task: "following the registry", Logger: o.log}, o.followRegistry)
		followers.Go(func() { follow.Run(ctx) })
	}
	background.NewPollLoop(background.PollOptions{Task: "assigning tasks", Logger: o.log, Signal: queue}, o.poll).Run(ctx)
}

// timerKind is the kind of the job that every open task has once.
const timerKind = "task.timer"

// RegisterJobs registers the handlers of the orchestrator's jobs.
func (o *Orchestrator) RegisterJobs(r *jobs.Runner) {
	r.Handle(timerKind, o.handleTimer, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Handle(subtaskKind, o.updateParent, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Handle(breakerKind, o.probeWorker, jobs.Policy{MaxBackoff: 10 * time.Second})
}
