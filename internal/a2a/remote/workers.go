package remote

import (
	"cmp"
	"context"
	"errors"
	"time"

	"comet/internal/background"
	"comet/internal/orchestrator"
	"comet/models"
	"comet/store"
	"comet/store/remotes"
)

// New returns the service.
func New(s *store.Store, work *orchestrator.Orchestrator, opts *Options) *Remotes {
	o := opts.orDefaults()
	r := &Remotes{store: s, work: work, opts: o, log: o.Logger, clock: o.Clock, transport: o.Guard.Transport(o.Timeout), holdings: map[holdingKey]*holding{}}
	r.poller = background.NewPollLoop(background.PollOptions{Task: "reading the remote agents", Logger: o.Logger},
		func(ctx context.Context) (time.Duration, error) { return r.opts.Poll, r.claimAll(ctx) })
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

// claimAll starts a session for each remote agent that no replica has and that has no connection of its own.
func (r *Remotes) claimAll(ctx context.Context) error {
	if err := r.work.Check(ctx); err != nil {
		return nil //nolint:nilerr // the states of workers are not loaded yet
	}
	all, err := remotes.All(r.store.Reads(ctx))
	current := map[holdingKey]*holding{}
	for _, row := range all {
		key := holdingKey{row.AgentID, row.Version, row.CreatedAt.UnixMicro()}
		h := cmp.Or(r.holdings[key], &holding{})
		current[key] = h
		worker := r.work.CachedWorker(row.AgentID)
		if row.Holder != "" || worker.State != models.WorkerOffline && worker.State != "" && worker.Transport != workerTransport || !h.held.CompareAndSwap(false, true) {
			continue
		}
		row.Holder = r.work.NewConnectionID()
		claimed := false
		err := r.store.Write(ctx, func(tx *store.Tx) (err error) {
			claimed, err = remotes.Claim(tx, row.AgentID, row.Version, row.Holder)
			return err
		})
		if err != nil || !claimed { // another replica has it
			h.held.Store(false)
			continue
		}
		r.running.Go(func() { r.hold(ctx, row, h) })
	}
	if err == nil {
		r.holdings = current
	}
	return err
}

// hold processes the inbox of an agent until the session is over, and then waits if the agent is not usable.
func (r *Remotes) hold(ctx context.Context, row remotes.Agent, h *holding) {
	defer r.poller.Wake()
	defer h.held.Store(false)
	begun := r.clock()
	err := r.runSession(ctx, row)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbyeTimeout)
	defer cancel()
	if failed := r.store.Write(end, func(tx *store.Tx) error { return remotes.Release(tx, row.AgentID, row.Holder) }); failed != nil {
		r.log.Warn("release a remote agent", "agent", row.AgentID, "error", failed)
	}
	if r.clock().Sub(begun) > r.opts.RetryMax || errors.Is(err, errLost) {
		h.retry = 0
	}
	if ctx.Err() == nil && !errors.Is(err, errLost) {
		r.log.Warn("a remote agent is not usable; retrying", "agent", row.AgentID, "error", err)
		h.retry = min(max(2*h.retry, r.opts.RetryMin), r.opts.RetryMax)
		_ = sleep(ctx, h.retry) // the service stops
	}
}
