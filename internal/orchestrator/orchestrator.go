// Package orchestrator is the core of comet: it accepts tasks, assigns each to an agent that can
// do it, and makes sure that every task ends exactly once, even if agents, connections or
// processes fail (Chiffon §Reliability Patterns, PROTOCOL_V5 §4). It does not depend on any
// protocol. Its nouns are Task, Attempt, Session and Worker. REST and all protocols call the same
// methods.
//
// # Operations
//
// Each method that changes something is one transaction, an operation. It changes the task and
// everything that follows from that: the attempt, the slots of the worker, the reservation in the
// ledger, the outcome for the statistics, the messages in the agent's inbox, the next timer (a
// job), and the events. Rows are locked in one order: task, session, worker, ledger account.
// After the commit, waiting goroutines are woken. A lost wake-up only costs time, because every
// waiting goroutine also polls.
//
// # Tasks
//
// A task is new until its agent accepts it, running until it ends, and it ends once: done, failed
// or cancelled. Until it ends, WaitingFor is the reason why it waits, and one timer runs at its
// Deadline.
package orchestrator

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/lifecycle"
	"comet/internal/orchestrator/selection"
	"comet/internal/places"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Classes adds policies by class to the built-in ones, or replaces them.
	Classes map[string]Policy
	// Registry changes the capabilities of agents; without one UpdateCapabilities fails.
	Registry *registry.Registry
	// Feed delivers the events of the registry; without one the agents are read once a minute.
	Feed *events.Feed
	// Waker wakes other replicas; default none.
	Waker Waker
	// Poll is the interval of looking for changes without a wake-up, default 500 ms.
	Poll time.Duration
	// OfflineAfter is how long a worker may be silent before it is offline, default 45 s: three
	// missed heartbeats.
	OfflineAfter time.Duration
	// MaxQueue is the maximum number of tasks in one queue, default 10,000.
	MaxQueue int
	// MaxQueuedTotal is the maximum number of tasks in all queues together, default 20,000.
	MaxQueuedTotal int
	// MaxWaiters is the maximum number of requests that wait for tasks, default 5,000;
	// MaxWaitersPerToken is the maximum for one token, default 1,000.
	MaxWaiters, MaxWaitersPerToken int
	// SessionIdle is how long a session without open tasks stays open, default 1 h.
	SessionIdle time.Duration
	// Retention is how long an ended task is kept, default 30 days.
	Retention time.Duration
	// Tracer starts the spans of tasks; default none.
	Tracer trace.Tracer
	// Logger receives failures; default discards.
	Logger *slog.Logger
}

// Waker sends wake-ups to other replicas, which call OnWake. Wake-ups may be lost.
type Waker interface {
	// Wake notifies the other replicas of a change.
	Wake(kind WakeKind, id string)
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	out.Poll = orElse(out.Poll, 500*time.Millisecond)
	out.OfflineAfter = orElse(out.OfflineAfter, 45*time.Second)
	out.Retention = orElse(out.Retention, 30*24*time.Hour)
	out.SessionIdle = orElse(out.SessionIdle, time.Hour)
	if out.MaxQueue <= 0 {
		out.MaxQueue = 10_000
	}
	if out.MaxQueuedTotal <= 0 {
		out.MaxQueuedTotal = 20_000
	}
	if out.MaxWaiters <= 0 {
		out.MaxWaiters = 5000
	}
	if out.MaxWaitersPerToken <= 0 {
		out.MaxWaitersPerToken = 1000
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Tracer == nil {
		out.Tracer = noop.NewTracerProvider().Tracer("")
	}
	all := classes()
	maps.Copy(all, out.Classes)
	out.Classes = all
	return out
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}

// Orchestrator is safe for concurrent use. Start it to assign queued tasks, to follow the workers
// of other replicas and to detect silent ones.
type Orchestrator struct {
	*lifecycle.Loop
	store       *store.Store
	ledger      *usage.Ledger
	opts        Options
	log         *slog.Logger
	index       *selection.Index
	workerCache *workerCache
	waiters     *waiters
	waitLimit   *places.Places // requests that wait for tasks

	tracesEnabled bool // without it nothing is read for spans
	counters      *counters
	gauges        gauges

	indexLoaded      atomic.Bool
	registryPosition atomic.Int64 // all registry events up to here are in the index
	// registryStale counts the requests to read the whole registry; registryFresh is the last of
	// them that was done.
	registryStale, registryFresh atomic.Int64
	// reindexMu is held while an agent is read into the index. reindexed lists the agents that
	// were read while loadIndex runs, nil at other times.
	reindexMu sync.Mutex
	reindexed []string
	// queues caches what the queued tasks require.
	queues *queueCache
	// startedAt is when Start was called, by the store's clock in microseconds.
	startedAt atomic.Int64
	// workersChanged is set when another replica has changed workers.
	workersChanged atomic.Bool
}

// New returns an orchestrator whose tasks spend from the ledger.
func New(s *store.Store, ledger *usage.Ledger, opts *Options) *Orchestrator {
	o := &Orchestrator{store: s, ledger: ledger, opts: opts.orDefaults(), index: selection.New(), waiters: newWaiters(),
		queues: newQueueCache(), counters: newCounters(), tracesEnabled: opts != nil && opts.Tracer != nil, gauges: newGauges(),
		workerCache: &workerCache{byID: map[string]models.Worker{}}}
	o.log, o.waitLimit = o.opts.Logger, places.New(o.opts.MaxWaiters, o.opts.MaxWaitersPerToken)
	o.registryStale.Store(1)
	o.startedAt.Store(s.Now().UnixMicro())
	o.Loop = lifecycle.NewLoop(func(ctx context.Context) {
		o.startedAt.Store(s.Now().UnixMicro())
		var followers sync.WaitGroup
		if o.opts.Feed != nil {
			followers.Go(func() { o.followRegistry(ctx) })
		}
		o.run(ctx)
		followers.Wait()
	})
	return o
}

// timerKind is the kind of the job that every open task has once.
const timerKind = "task.timer"

// RegisterJobs registers the handlers of the orchestrator's jobs.
func (o *Orchestrator) RegisterJobs(r *jobs.Runner) {
	r.Handle(timerKind, o.handleTimer, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Handle(subtaskKind, o.updateParent, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Handle(breakerKind, o.probeWorker, jobs.Policy{MaxBackoff: 10 * time.Second})
}

// policyOf returns the policy of a task. A class that this version does not know has the default
// policy.
func (o *Orchestrator) policyOf(t models.Task, override Override) Policy {
	p, known := o.opts.Classes[t.Class]
	if !known {
		p = o.opts.Classes[ClassDefault]
	}
	return p.withOverride(override)
}

// Check returns an error until the index of agents is loaded. It is a readiness check.
func (o *Orchestrator) Check(context.Context) error {
	if !o.indexLoaded.Load() {
		return errs.New(errs.Unavailable, "the agents are not read yet")
	}
	return nil
}
