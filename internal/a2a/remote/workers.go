package remote

import (
	"context"
	"errors"
	"time"

	"comet/internal/background"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/remotes"
)

const (
	// reloadInterval is how often the remote agents are read, to notice changes by other processes.
	reloadInterval = 2 * time.Second
)

// New returns the service.
func New(s *store.Store, work *orchestrator.Orchestrator, opts *Options) *Remotes {
	o := opts.orDefaults()
	r := &Remotes{store: s, work: work, opts: o, log: o.Logger, clock: o.Clock, transport: o.Guard.Transport(o.Timeout), workers: map[string]*worker{}}
	r.poller = background.NewPollLoop(background.PollOptions{Task: "reading the remote agents", Logger: o.Logger},
		func(ctx context.Context) (time.Duration, error) { return reloadInterval, r.syncWorkers(ctx) })
	r.Loop = background.NewLoop(r.run)
	return r
}

func (r *Remotes) run(ctx context.Context) {
	defer r.transport.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer r.running.Wait()
	defer cancel()
	r.poller.Run(ctx)
}

// syncWorkers starts and stops workers to match the remote agents.
func (r *Remotes) syncWorkers(ctx context.Context) error {
	if err := r.work.Check(ctx); err != nil {
		return nil //nolint:nilerr // the states of workers are not loaded yet
	}
	all, err := remotes.All(r.store.Reads(ctx))
	if err != nil {
		return err
	}
	current := map[string]remotes.Agent{}
	for _, a := range all {
		current[a.AgentID] = a
	}
	for id, w := range r.workers {
		if now := current[id]; now.Version != w.Version || !now.CreatedAt.Equal(w.CreatedAt) {
			w.cancel()
			delete(r.workers, id)
		}
	}
	for id, a := range current {
		if r.workers[id] == nil {
			w := &worker{Agent: a}
			var inner context.Context
			inner, w.cancel = context.WithCancel(ctx)
			r.workers[id] = w
			r.running.Go(func() { r.runWorker(inner, id) })
		}
	}
	return nil
}

// runWorker processes the inbox of an agent whenever no other replica does, until ctx ends.
func (r *Remotes) runWorker(ctx context.Context, agentID string) {
	retry := r.opts.RetryMin
	for wait := time.Duration(0); sleep(ctx, wait) == nil; {
		wait = r.opts.Poll
		worker := r.work.CachedWorker(agentID)
		if worker.State != models.WorkerOffline && worker.State != "" && worker.Transport != workerTransport {
			continue // the agent has connected itself
		}
		connectionID := r.work.NewConnectionID()
		row, err := r.claim(ctx, agentID, connectionID)
		if err != nil || row.Holder == "" {
			continue // another replica has it
		}
		begun := r.clock()
		err = r.runSession(ctx, row)
		if r.clock().Sub(begun) > r.opts.RetryMax {
			retry = r.opts.RetryMin
		}
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
		if failed := r.store.Write(end, func(tx *store.Tx) error { return remotes.Release(tx, agentID, connectionID) }); failed != nil {
			r.log.Warn("release a remote agent", "agent", agentID, "error", failed)
		}
		cancel()
		if errors.Is(err, errLost) {
			retry, wait = r.opts.RetryMin, 0
			continue
		}
		if ctx.Err() == nil {
			r.log.Warn("a remote agent is not usable; retrying", "agent", agentID, "error", err)
		}
		wait, retry = retry, min(2*retry, r.opts.RetryMax)
	}
}

// claim makes a connection the holder of a remote agent. The Holder of the row is "" if there is another one.
func (r *Remotes) claim(ctx context.Context, agentID, connectionID string) (row remotes.Agent, err error) {
	err = r.store.Write(ctx, func(tx *store.Tx) error {
		if row, err = remotes.Get(tx, agentID); err != nil {
			return err
		}
		ok, err := remotes.Claim(tx, agentID, row.Version, connectionID)
		if row.Holder = ""; ok {
			row.Holder = connectionID
		}
		return err
	})
	return row, err
}
