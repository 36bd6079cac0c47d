// Package workflow executes durable workflows (AgentCards, “agentcards:execute_dag”). The process that holds a
// workflow executes its tool and code steps; agent steps are tasks of the orchestrator. A step begins and ends in
// transactions that also decide what follows, so another process can continue at any time.
package workflow

import (
	"cmp"
	"context"
	"encoding/base32"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/semaphore"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/jobs"
	"comet/internal/orchestrator"
	"comet/internal/tools"
	"comet/models"
	"comet/store"
	"comet/store/replicas"
	"comet/store/workflows"
)

// Dependencies are the services that New needs; all are required.
type Dependencies struct {
	Store        *store.Store
	Auth         *auth.Auth
	Tools        *tools.Service
	Orchestrator *orchestrator.Orchestrator
}

// Options configures New; nil means defaults.
type Options struct {
	// MaxActive limits the workflows of a token that have not ended, default 100 (AgentCards, “Limites”).
	MaxActive int
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
	// Logger receives failures; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.MaxActive = cmp.Or(out.MaxActive, 100)
	out.MaxRunning = cmp.Or(out.MaxRunning, 16)
	out.Slots = cmp.Or(out.Slots, 256)
	out.PauseTTL = cmp.Or(out.PauseTTL, time.Hour)
	out.StepTimeout = cmp.Or(out.StepTimeout, 30*time.Second)
	out.AbortGrace = cmp.Or(out.AbortGrace, 5*time.Second)
	out.Retention = cmp.Or(out.Retention, 30*24*time.Hour)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}

// Engine executes workflows. It is safe for concurrent use.
type Engine struct {
	Dependencies
	opts  Options
	slots *semaphore.Weighted // of tool and code steps that run

	// work is the context of steps, and cancelWork ends them. draining is closed when no further step may begin.
	work       context.Context
	cancelWork context.CancelFunc
	draining   chan struct{}
	started    chan struct{}

	mu      sync.Mutex
	runs    map[string]*run // of the workflows that this process holds
	stopped bool
	active  sync.WaitGroup // the runs
}

// New returns an engine. RegisterJobs must be called before the runner of the jobs starts.
func New(d Dependencies, opts *Options) *Engine {
	e := &Engine{Dependencies: d, opts: opts.orDefaults(), draining: make(chan struct{}), started: make(chan struct{}), runs: map[string]*run{}}
	e.slots = semaphore.NewWeighted(int64(e.opts.Slots))
	e.work, e.cancelWork = context.WithCancel(context.Background())
	return e
}

// expireJob is the kind of the job that ends a pause; its key is the id of the workflow.
const expireJob = "workflows.expire"

// RegisterJobs registers the handlers of the engine's jobs.
func (e *Engine) RegisterJobs(r *jobs.Runner) {
	r.Handle(replicas.AdoptWorkflows, e.adopt, jobs.Policy{MaxBackoff: time.Minute})
	r.Handle(expireJob, e.expire, jobs.Policy{MaxBackoff: time.Minute})
}

// Start implements background.Service. Start it after the tools.
func (e *Engine) Start(context.Context) error {
	close(e.started)
	return nil
}

// Stop implements background.Service. It starts no further steps and waits until ctx ends for those that run; their
// results are stored. Then it cancels them. Other processes continue the workflows when this one has ended.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	if !e.stopped {
		e.stopped = true
		close(e.draining)
	}
	e.mu.Unlock()
	done := make(chan struct{})
	go func() {
		e.active.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	e.cancelWork()
	<-done
	return nil
}

// Purge deletes workflows that ended before the retention.
func (e *Engine) Purge(ctx context.Context) error {
	return e.Store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return workflows.Purge(tx, tx.Now().Add(-e.opts.Retention), limit)
	})
}

// hold registers a workflow that this process holds and executes it. It reports false after Stop: another process
// continues the workflow.
func (e *Engine) hold(r *run, first []dispatch) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return false
	}
	e.runs[r.row.ID] = r
	e.active.Go(func() {
		defer func() {
			e.mu.Lock()
			if e.runs[r.row.ID] == r {
				delete(e.runs, r.row.ID)
			}
			e.mu.Unlock()
			close(r.done)
		}()
		r.execute(first)
	})
	return true
}

// held returns the run of a workflow that this process holds, nil for another one.
func (e *Engine) held(id string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

// standing returns the principal as it is now. A JWT is not stored, so that after a restart its workflows cannot go on.
func (e *Engine) standing(ctx context.Context, by models.Principal) (models.Principal, error) {
	if by.Issued != nil && by.Issued.Active(e.Store.Now()) {
		return by, nil
	}
	return e.Auth.Standing(ctx, by.TokenID)
}

// own is visible for a principal that changes the workflow: one that has expired is WORKFLOW_NOT_FOUND (AgentCards,
// “Codes d'erreur”).
func own(w workflows.Workflow, err error, by models.Principal, id string) error {
	if err = visible(w, err, by, id); err == nil && w.ErrorCode == codeExpired {
		return tools.NewError(errs.NotFound, "WORKFLOW_NOT_FOUND", "the workflow %s expired at %s, because no decision was made", id, w.EndedAt.Format(time.RFC3339))
	}
	return err
}

// visible returns WORKFLOW_NOT_FOUND for an unknown workflow and for one of another token, which only administrators see.
func visible(w workflows.Workflow, err error, by models.Principal, id string) error {
	if errs.Is(err, errs.NotFound) || err == nil && w.TokenID != by.TokenID && !by.Administers() {
		return tools.NewError(errs.NotFound, "WORKFLOW_NOT_FOUND", "there is no workflow %q", input.Clip(id))
	}
	return err
}

// errState is the error for a request that the state of a workflow does not allow.
func errState(format string, args ...any) error {
	return tools.NewError(errs.Conflict, "WORKFLOW_STATE", format, args...)
}

// encoding is the alphabet of ids: it keeps the order of UUIDv7 and has no letters that look like digits.
var encoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding) //nolint:gochecknoglobals // never changed

// newID returns a prefix and a UUIDv7 in base 32.
func newID(prefix string) string {
	id := uuid.Must(uuid.NewV7())
	return prefix + encoding.EncodeToString(id[:])
}
