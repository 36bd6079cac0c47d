// Package workflow executes durable workflows (AgentCards, “agentcards:execute_dag”). The process that holds a
// workflow executes its tool and code steps; agent steps are tasks of the orchestrator. A step begins and ends in
// transactions that also decide what follows, so another process can continue at any time.
package workflow

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"comet/internal/jobs"
	"comet/store"
	"comet/store/replicas"
	"comet/store/workflows"
)

// Engine executes workflows. It is safe for concurrent use.
type Engine struct {
	*environment
	started chan struct{}

	mu      sync.Mutex
	runs    map[string]*run // of the workflows that this process holds
	stopped bool
	active  sync.WaitGroup // the runs
}

// New returns an engine. RegisterJobs must be called before the runner of the jobs starts.
func New(d Dependencies, opts *Options) *Engine {
	env := &environment{Dependencies: d, opts: opts.orDefaults(), draining: make(chan struct{})}
	env.slots = semaphore.NewWeighted(int64(env.opts.Slots))
	env.work, env.cancelWork = context.WithCancel(context.Background())
	return &Engine{environment: env, started: make(chan struct{}), runs: map[string]*run{}}
}

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

// hold executes a workflow that this process holds, unless no step runs or the engine has stopped: then another process
// continues the workflow.
func (e *Engine) hold(x *execution, first []dispatch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped || len(first) == 0 {
		return
	}
	r := newRun(x)
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
}

// held returns the run of a workflow that this process holds, nil for another one.
func (e *Engine) held(id string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}
