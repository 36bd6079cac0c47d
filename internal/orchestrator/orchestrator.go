// Package orchestrator moves work: it takes tasks from whoever asks, gives each to an
// agent that can do it, and sees to it that the task ends, once, whatever becomes of
// agents, lines and processes on the way (Chiffon §Reliability Patterns, PROTOCOL_V5
// §4). It knows no dialect. Its nouns are Task, Attempt, Session and Worker; every
// door, of REST or of a protocol, calls the same verbs.
//
// # A verb
//
// Each verb is one transaction. It changes the task and whatever follows from that:
// the attempt, the worker's places, the reservation in the ledger, the outcome that
// statistics read, what the agent must be told (its inbox), the next timer (a job), and
// the events that tell of it. Rows are locked in one order: task, session, worker, the
// ledger's accounts. After the commit those who wait are woken; a wake-up that is lost
// costs time and nothing else, because everybody who waits also looks.
//
// # A task
//
// A task is new until its agent says that it has it, running until it ends, and ends
// done, failed or cancelled, once. While it has not ended, Waits says what for, and one
// timer stands for the moment at which the wait is over (Deadline).
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
	// Classes are policies by class, beside those that are always there and instead
	// of those with the same name.
	Classes map[string]Policy
	// Registry changes what agents offer; without one nobody can.
	Registry *registry.Registry
	// Feed tells of changes in the registry; without one they are found once a minute.
	Feed *events.Feed
	// Waker wakes other replicas; default none.
	Waker Waker
	// Poll is how often is looked for what this process was not told of, default 500 ms.
	Poll time.Duration
	// OfflineAfter is how long a worker may be silent before it counts as offline, default
	// 45 s: three heartbeats missed.
	OfflineAfter time.Duration
	// MaxQueue is how many tasks may wait in one line, default 10,000.
	MaxQueue int
	// MaxQueuedTotal is how many tasks may wait in all lines together, default 20,000.
	MaxQueuedTotal int
	// MaxWaiters is how many requests may wait for tasks at a time, default 5,000, and
	// MaxWaitersPerToken how many of one token, default 1,000.
	MaxWaiters, MaxWaitersPerToken int
	// SessionIdle is how long a session stays open without a task, default 1 h.
	SessionIdle time.Duration
	// Retention is how long a task that has ended is kept, default 30 days.
	Retention time.Duration
	// Tracer makes the spans of tasks; default nobody does.
	Tracer trace.Tracer
	// Logger hears of what fails; default discards.
	Logger *slog.Logger
}

// Waker carries wake-ups to other replicas, and theirs to Hear. Neither has to arrive.
type Waker interface {
	// Wake tells the other replicas that something of a kind has changed.
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

// Orchestrator is safe for concurrent use. Start it to serve lines, to follow workers
// of other replicas and to notice those that fall silent.
type Orchestrator struct {
	*lifecycle.Loop
	store       *store.Store
	ledger      *usage.Ledger
	opts        Options
	log         *slog.Logger
	index       *selection.Index
	workerCache *workerCache
	waiters     *waiters
	waitLimit   *places.Places // of the requests that wait for tasks

	tracesEnabled bool // are made
	counters      *counters
	gauges        gauges

	registryPosition atomic.Int64 // position up to which the registry's events are known
	// registryStale counts how often the registry was to be read as a whole, and fresh up to
	// which of these it was.
	registryStale, registryFresh atomic.Int64
	// reindexMu is held while an agent is read into the index; learned are those that
	// were while all are, nil at other times.
	reindexMu sync.Mutex
	reindexed []string
	// queues are what the tasks that wait need.
	queues *queueCache
	// startedAt is when Start was called, by the store's clock in microseconds.
	startedAt atomic.Int64
	// workersChanged is set when another replica has changed workers.
	workersChanged atomic.Bool
}

// New returns an orchestrator over the store whose tasks spend in the ledger.
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

// timerKind is the kind of the one job a task has while it has not ended.
const timerKind = "task.timer"

// RegisterJobs has the runner keep the orchestrator's timers.
func (o *Orchestrator) RegisterJobs(r *jobs.Runner) {
	r.Handle(timerKind, o.handleTimer, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Handle(subtaskKind, o.updateParent, jobs.Policy{MaxBackoff: 10 * time.Second})
	r.Handle(breakerKind, o.probeWorker, jobs.Policy{MaxBackoff: 10 * time.Second})
}

// policyOf returns the policy of a task, whose class may be one that another version of
// the program knew.
func (o *Orchestrator) policyOf(t models.Task, override Override) Policy {
	p, known := o.opts.Classes[t.Class]
	if !known {
		p = o.opts.Classes[ClassDefault]
	}
	return p.withOverride(override)
}

// Check reports whether the index of agents is filled, for readiness.
func (o *Orchestrator) Check(context.Context) error { return o.waiters.ready() }
