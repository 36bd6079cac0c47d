// Package orchestrator is the core of comet: it accepts tasks, assigns each to an agent that can do it, and makes sure
// that every task ends exactly once, even if agents, connections or processes fail (Chiffon §Reliability Patterns,
// PROTOCOL_V5 §4). It does not depend on any protocol. Its nouns are Task, Attempt, Session and Worker. REST and all
// protocols call the same methods.
//
// # Operations
//
// Each method that changes something is one transaction, an operation. It changes the task and everything that follows
// from that: the attempt, the slots of the worker, the reservation in the ledger, the outcome for the statistics, the
// messages in the agent's inbox, the deadline, and the events. Rows are locked in one order: task, session, worker,
// ledger account. After the commit, waiting goroutines are woken. A lost wake-up only costs time, because every waiting
// goroutine also polls.
//
// # Tasks
//
// A task is new until its agent accepts it, running until it ends, and it ends once: done, failed or cancelled. Until
// it ends, WaitingFor is the reason why it waits, and its timer runs at its Deadline. The row of a task contains its
// newest attempt and the message that assigns it.
package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator/metrics"
	"comet/internal/orchestrator/selection"
	"comet/internal/orchestrator/wakeups"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Classes adds policies by class to the built-in ones, or replaces them.
	Classes map[string]Policy
	// Registry changes agents; without one UpdateAgent fails. What it changes is in the index at once.
	Registry *registry.Registry
	// Feed delivers the events of the registry; without one the agents are read once a minute.
	Feed *events.Feed
	// Resolver resolves references in the parameters of tasks with a session; nil leaves them as text.
	Resolver Resolver
	// ReservedSessionID reports whether OpenSession rejects an id because only NewSession.ID may
	// return it; default none.
	ReservedSessionID func(id string) bool
	// Waker wakes other replicas; default none.
	Waker Waker
	// Alone is set if no other orchestrator uses the database: then the attempts of each agent are
	// counted in memory, otherwise in the agent's row.
	Alone bool
	// Poll is the interval of looking for changes without a wake-up, default 500 ms.
	Poll time.Duration
	// OfflineAfter is how long a worker may be silent before it is offline, default 45 s: three
	// missed heartbeats.
	OfflineAfter time.Duration
	// ReturnGrace is how long a worker whose connection has ended keeps its attempts, default 10 s.
	ReturnGrace time.Duration
	// MaxQueue is the maximum number of tasks in one queue, default 10,000.
	MaxQueue int
	// MaxWaiters is the maximum number of requests that wait for tasks, default 5,000;
	// MaxWaitersPerToken is the maximum for one token, default 1,000.
	MaxWaiters, MaxWaitersPerToken int
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

// Resolver resolves references in the parameters of a task to values of its session.
type Resolver interface {
	// MayRefer reports whether parameters may contain a reference.
	MayRefer(parameters json.RawMessage) bool
	// Resolve returns the parameters with values in place of references. The session has no id if
	// it is opened for the task. It runs outside of a transaction, because it may take long: facts
	// and outputs of ended tasks do not change.
	Resolve(ctx context.Context, o *Orchestrator, session models.Session, parameters json.RawMessage) (json.RawMessage, error)
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Poll = cmp.Or(out.Poll, 500*time.Millisecond)
	out.OfflineAfter = cmp.Or(out.OfflineAfter, 45*time.Second)
	out.ReturnGrace = cmp.Or(out.ReturnGrace, 10*time.Second)
	out.Retention = cmp.Or(out.Retention, 30*24*time.Hour)
	out.MaxQueue = cmp.Or(out.MaxQueue, 10_000)
	out.MaxWaiters = cmp.Or(out.MaxWaiters, 5000)
	out.MaxWaitersPerToken = cmp.Or(out.MaxWaitersPerToken, 1000)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	if out.Tracer == nil {
		out.Tracer = noop.NewTracerProvider().Tracer("")
	}
	all := classes()
	maps.Copy(all, out.Classes)
	out.Classes = all
	return out
}

// Orchestrator is safe for concurrent use. Start it to assign queued tasks, to follow the workers of other replicas and
// to detect silent ones.
type Orchestrator struct {
	*background.Loop
	environment
	store     *store.Store
	log       *slog.Logger
	waitLimit *background.Limiter[string] // requests that wait for tasks
	gauges    gauges
	failures  *background.FailureLog
	// reindexedAt and refreshedAt are when poll read all agents and the changed workers.
	reindexedAt, refreshedAt time.Time

	indexLoaded      atomic.Bool
	registryPosition atomic.Int64 // all registry events up to here are in the index
	// registryStale counts the requests to read the whole registry; registryFresh is the last of
	// them that was done.
	registryStale, registryFresh atomic.Int64
	// workersChanged is set when another replica has changed workers.
	workersChanged atomic.Bool
}

// environment is what operations use besides their transaction. It has no store: an operation reads in its transaction
// only.
type environment struct {
	ledger   *usage.Ledger
	opts     Options
	index    *selection.Index // the agents and their newest states as workers
	queues   *queueCache      // the requirements of the queued tasks
	counters *metrics.Counters
	timers   *wakeups.Timers
	acks     *wakeups.Acks
	waiters  *wakeups.Waiters

	tracesEnabled bool // if false, nothing is read for spans
	// availableSince is when Start was called or the database was last unavailable, by the store's clock in microseconds.
	availableSince atomic.Int64
}

// policyOf returns the policy of a task, the default one for an unknown class.
func (e *environment) policyOf(t models.Task, override Override) Policy {
	p, known := e.opts.Classes[t.Class]
	if !known {
		p = e.opts.Classes[ClassDefault]
	}
	return p.withOverride(override)
}

// Check returns an error until the index of agents is loaded. It is a readiness check.
func (o *Orchestrator) Check(context.Context) error {
	if !o.indexLoaded.Load() {
		return errs.New(errs.Unavailable, "the agents are not loaded yet; try again")
	}
	return nil
}
