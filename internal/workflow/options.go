package workflow

import (
	"cmp"
	"context"
	"encoding/base32"
	"log/slog"
	"time"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sync/semaphore"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/tools"
	"comet/internal/toolsearch"
	"comet/internal/usage"
	"comet/store"
)

// Dependencies are the services that New needs; all are required.
type Dependencies struct {
	Store  *store.Store
	Ledger *usage.Ledger
	Auth   *auth.Auth
	Tools  *tools.Service
	// Feed reports what other processes change.
	Feed         *events.Feed
	Orchestrator *orchestrator.Orchestrator
	Index        *toolsearch.Index
}

// Options configures New; nil means defaults.
type Options struct {
	// MaxActive limits the workflows of a token that have not ended, default 100 (AgentCards, “Limites”).
	MaxActive int
	// MaxTotal limits the workflows of all tokens that have not ended, default 10,000.
	MaxTotal int
	// MaxResults limits the results of a workflow together, in bytes, default 64 MiB.
	MaxResults int64
	// MaxRunning limits the steps of a workflow that run at a time, default 16; Slots those of the process, default 256.
	MaxRunning, Slots int
	// PauseTTL is how long a workflow stays paused before it is aborted, default 1 h (AgentCards, “Limites”).
	PauseTTL time.Duration
	// StepTimeout is the default timeout of a step, 30 s (AgentCards, “Limites”).
	StepTimeout time.Duration
	// AbortGrace is how long Abort waits for steps that it has cancelled, default 5 s.
	AbortGrace time.Duration
	// Retention is how long an ended workflow is kept, default 30 days.
	Retention time.Duration
	// Tracer starts the spans of steps; default none.
	Tracer trace.Tracer
	// Logger receives failures; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.MaxActive = cmp.Or(out.MaxActive, 100)
	out.MaxTotal = cmp.Or(out.MaxTotal, 10_000)
	out.MaxResults = cmp.Or(out.MaxResults, 64<<20)
	out.MaxRunning = cmp.Or(out.MaxRunning, 16)
	out.Slots = cmp.Or(out.Slots, 256)
	out.PauseTTL = cmp.Or(out.PauseTTL, time.Hour)
	out.StepTimeout = cmp.Or(out.StepTimeout, 30*time.Second)
	out.AbortGrace = cmp.Or(out.AbortGrace, 5*time.Second)
	out.Retention = cmp.Or(out.Retention, 30*24*time.Hour)
	if out.Tracer == nil {
		out.Tracer = noop.NewTracerProvider().Tracer("")
	}
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}

// environment has the services and settings that all executions share.
type environment struct {
	Dependencies
	opts     Options
	observer *observer
	slots    *semaphore.Weighted // of tool and code steps that run

	// work is the context of steps, and cancelWork cancels it. draining is closed when no further step may begin.
	work       context.Context
	cancelWork context.CancelFunc
	draining   chan struct{}
}

// errState is the error for a request that the state of a workflow does not allow.
func errState(format string, args ...any) error {
	return tools.NewError(errs.Conflict, "WORKFLOW_STATE", format, args...)
}

// encoding is the alphabet of ids: it keeps the order of UUIDv7 and has no letters that look like digits.
var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding) //nolint:gochecknoglobals // never changed

// IDPrefix begins the id of every workflow.
const IDPrefix = "wf_"

// newID returns a prefix and a UUIDv7 in base 32.
func newID(prefix string) string {
	id := uuid.Must(uuid.NewV7())
	return prefix + encoding.EncodeToString(id[:])
}
