package jobs

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"comet/internal/background"
	"comet/store"
	"comet/store/replicas"
)

const (
	// heartbeatInterval is the interval at which a process shows that it is alive.
	heartbeatInterval = time.Second
	// maxMissedHeartbeats is the number of intervals without a heartbeat after which a process has died.
	maxMissedHeartbeats = 3
)

// ReplicaOptions configures NewReplicas.
type ReplicaOptions struct {
	// Disconnect records the end of a worker's connection to a process that has died. It does nothing
	// if the worker has another connection by now.
	Disconnect func(ctx context.Context, agentID, connectionID string) error
	// Removed is called if other processes took this one for dead and released what it holds.
	Removed func()
	// Isolated is true if the replicas have no common message bus and so do not wake each other.
	Isolated bool
	// Logger receives the replicas that died; default discards.
	Logger *slog.Logger
}

// Replicas releases the leases of webhooks and jobs, and the connections of workers, that belong to
// processes that have died. Each process increments the counter in its row every second and then
// compares the counters of the others, so a difference between clocks or an outage of the database
// does not make a process count as dead. SQLite has one process: all leases that it finds when it
// starts belong to dead processes. Workers have a few seconds to connect again.
type Replicas struct {
	*background.Loop
	store *store.Store
	opts  ReplicaOptions
	log   *slog.Logger
	// others has the other processes, as this process saw them at its last heartbeat, nil before the first.
	others map[string]observed
	warned bool
	ending sync.WaitGroup // releases of connections
	// earlier has the connections to the processes before this one (SQLite).
	earlier []replicas.Connection
}

// observed is another process at the last heartbeat of this one.
type observed struct {
	heartbeats int64
	missed     int
}

// NewReplicas returns a service that must start before leases are taken.
func NewReplicas(s *store.Store, opts ReplicaOptions) *Replicas {
	r := &Replicas{store: s, opts: opts, log: cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))}
	r.Loop = background.NewLoop(r.run)
	return r
}

// Start implements background.Service.
func (r *Replicas) Start(ctx context.Context) error {
	if r.store.Alone() {
		var err error
		if r.earlier, err = replicas.Connections(r.store.Reads(ctx), replicas.All); err != nil {
			return err
		}
		if _, err = r.releaseLeases(ctx, replicas.All); err != nil {
			return err
		}
	} else if err := r.Heartbeat(ctx); err != nil {
		return err
	}
	return r.Loop.Start(ctx)
}

// Stop implements background.Service.
func (r *Replicas) Stop(ctx context.Context) error {
	err := r.Loop.Stop(ctx)
	r.ending.Wait()
	if !r.store.Alone() {
		// After a failure the others delete it.
		_, _ = r.releaseLeases(ctx, r.store.Process())
	}
	return err
}

func (r *Replicas) run(ctx context.Context) {
	if !r.store.Alone() {
		opts := background.PollOptions{Task: "looking for replicas that died", Logger: r.log, MaxBackoff: heartbeatInterval}
		_ = background.Sleep(ctx, heartbeatInterval)
		background.NewPollLoop(opts, func(ctx context.Context) (time.Duration, error) { return heartbeatInterval, r.Heartbeat(ctx) }).Run(ctx)
		return
	}
	if background.Sleep(ctx, maxMissedHeartbeats*heartbeatInterval) != nil {
		return
	}
	if err := r.disconnect(ctx, r.earlier); err != nil && ctx.Err() == nil {
		r.log.Warn("the connections of an earlier process were not ended; they time out", "error", err)
	}
}

// Heartbeat records that this process is alive, and releases the leases and connections of processes that
// have not done so for maxMissedHeartbeats intervals. It is called every second.
func (r *Replicas) Heartbeat(ctx context.Context) error {
	var all []replicas.Replica
	var heartbeats int64
	err := r.store.Write(ctx, func(tx *store.Tx) (err error) {
		heartbeats, all, err = replicas.Heartbeat(tx, r.store.Process())
		return err
	})
	if err != nil {
		return err
	}
	if heartbeats == 1 && r.others != nil && r.opts.Removed != nil {
		r.opts.Removed()
	}
	before := r.others
	r.others = make(map[string]observed, len(all))
	for _, other := range all {
		now := observed{heartbeats: other.Heartbeats}
		if earlier, known := before[other.ID]; known && earlier.heartbeats == now.heartbeats {
			now.missed = earlier.missed + 1
		}
		r.others[other.ID] = now
	}
	for id, other := range r.others {
		switch {
		case other.missed >= maxMissedHeartbeats:
			if err := r.release(ctx, id); err != nil {
				return err
			}
		case r.opts.Isolated && !r.warned && other.missed == 0 && other.heartbeats > maxMissedHeartbeats:
			r.warned = true
			r.log.WarnContext(ctx, "several servers use this database without a common NATS server: they find each other's work by polling only, which takes seconds; set --nats-url", "replica", id)
		}
	}
	return nil
}

// release releases the leases of a process that has died, and then its connections, for which the next
// heartbeats do not wait. Of several processes the one that deletes the row does it.
func (r *Replicas) release(ctx context.Context, process string) error {
	r.log.WarnContext(ctx, "a replica has died; its leases and its connections are released", "replica", process)
	left, err := replicas.Connections(r.store.Reads(ctx), process)
	if err != nil {
		return err
	}
	released, err := r.releaseLeases(ctx, process)
	if err != nil || !released {
		return err
	}
	r.ending.Go(func() {
		if err := r.disconnect(ctx, left); err != nil && ctx.Err() == nil {
			r.log.Warn("the connections of a replica that died were not ended; they time out", "error", err)
		}
	})
	return nil
}

func (r *Replicas) releaseLeases(ctx context.Context, process string) (found bool, err error) {
	err = r.store.Write(ctx, func(tx *store.Tx) (err error) {
		found, err = replicas.Release(tx, process)
		return err
	})
	return found, err
}

func (r *Replicas) disconnect(ctx context.Context, all []replicas.Connection) error {
	for _, c := range all {
		if err := r.opts.Disconnect(ctx, c.AgentID, c.ConnectionID); err != nil {
			return err
		}
	}
	return nil
}
