// Package workflow executes durable workflows (AgentCards, “agentcards:execute_dag”). The process that holds a
// workflow executes its tool and code steps; agent steps are tasks of the orchestrator. The transaction that stores the
// result of a step also stores what follows, so another process can continue the workflow at any time.
package workflow

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"comet/internal/errs"
	"comet/internal/events"
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
	runs    map[string]*run // by the id of the workflow that this process holds
	stopped bool
	active  sync.WaitGroup // the runs

	following sync.WaitGroup // followOthers
	watched   watched
}

// New returns an engine. RegisterJobs must be called before the runner of the jobs starts.
func New(d Dependencies, opts *Options) *Engine {
	env := &environment{Dependencies: d, opts: opts.orDefaults(), draining: make(chan struct{})}
	env.observer = newObserver(env.opts.Tracer)
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
func (e *Engine) Start(ctx context.Context) error {
	changes, err := e.Feed.SubscribeNew(ctx)
	if err != nil {
		return err
	}
	e.following.Go(func() { e.followOthers(changes.Only(EventReplanned, EventPaused, EventResumed, EventEnded)) })
	close(e.started)
	return nil
}

// followOthers follows what other processes do to the workflows that this process holds, until the engine stops: it reads the
// steps that they add, and cancels the steps of workflows that they end. It also ends contexts of UntilChange.
func (e *Engine) followOthers(changes *events.Subscription) {
	const batch = 100
	for {
		found, err := changes.Next(e.work, batch)
		if err != nil {
			return
		}
		for _, event := range found {
			e.watched.changed(event)
			switch r := e.held(event.Key); {
			case r == nil:
			case event.Type == EventReplanned:
				r.extend()
			case event.Type == EventEnded:
				r.cancel()
			}
		}
	}
}

// Stop implements background.Service. It starts no further steps and waits until ctx ends for those that run; their
// results are stored. Then it cancels them. Other processes continue the workflows after this one has ended.
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
	e.following.Wait()
	return nil
}

// Purge deletes workflows that ended before the retention.
func (e *Engine) Purge(ctx context.Context) error {
	return e.Store.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
		return workflows.Purge(tx, tx.Now().Add(-e.opts.Retention), limit)
	})
}

// reserve registers the run of a workflow before this process becomes its holder, so that Abort finds it. The caller calls
// launch or drop. It returns errs.Unavailable after Stop.
func (e *Engine) reserve(x *execution) (r, earlier *run, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopped {
		return nil, nil, errs.New(errs.Unavailable, "this server is shutting down")
	}
	r, earlier = newRun(x), e.runs[x.row.ID]
	e.runs[x.row.ID] = r
	e.active.Add(1)
	return r, earlier, nil
}

// launch executes a reserved run. It cancels the earlier run, which exists if other processes took this one for dead.
func (e *Engine) launch(r, earlier *run, first []dispatch) {
	if earlier != nil {
		earlier.cancel()
	}
	go func() { e.drop(r, nil, r.execute(first) != nil) }()
}

// drop removes a run that has ended or was not launched, and registers the earlier run again unless that has ended. lost is
// set if this process may still be the holder.
func (e *Engine) drop(r, earlier *run, lost bool) {
	e.mu.Lock()
	r.ended = true
	if e.runs[r.row.ID] == r {
		if delete(e.runs, r.row.ID); earlier != nil && !earlier.ended {
			e.runs[r.row.ID] = earlier
		}
	}
	e.mu.Unlock()
	close(r.done)
	go func() {
		defer e.active.Done()
		if lost {
			e.disown(r.row.ID)
		}
	}()
}

// disown lets the workflow be adopted if this process is its holder and does not execute it: a commit may have succeeded
// although its outcome was unknown.
func (e *Engine) disown(id string) {
	_ = e.whenAvailable(e.work, func() error { // when the engine stops, the replicas release the workflow
		return e.Store.Write(e.work, func(tx *store.Tx) error {
			if e.held(id) != nil {
				return nil
			}
			found, err := workflows.Disown(tx, id, e.Store.Process())
			if err == nil && found {
				_, err = tx.Jobs().Enqueue(store.Job{Kind: replicas.AdoptWorkflows})
			}
			return err
		})
	})
}

// held returns the run of a workflow, nil if this process does not hold it.
func (e *Engine) held(id string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}
