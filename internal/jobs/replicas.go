package jobs

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"comet/internal/background"
	"comet/store"
)

const (
	// beatInterval is the interval at which a process shows that it is alive.
	beatInterval = time.Second
	// maxMissedBeats is the number of intervals without a beat after which a process has died.
	maxMissedBeats = 3
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
	// others has the other processes, as this process saw them at its last beat, nil before the first.
	others map[string]replica
	warned bool
	ending sync.WaitGroup // releases of connections
}

// replica is a row of the table replicas.
type replica struct {
	ID     string
	Beats  int64
	missed int
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
		if _, err := r.releaseLeases(ctx, "%"); err != nil {
			return err
		}
	} else if err := r.Beat(ctx); err != nil {
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
		opts := background.PollOptions{Task: "looking for replicas that died", Logger: r.log, MaxBackoff: beatInterval}
		_ = background.Sleep(ctx, beatInterval)
		background.NewPollLoop(opts, func(ctx context.Context) (time.Duration, error) { return beatInterval, r.Beat(ctx) }).Run(ctx)
		return
	}
	left, err := r.connections(ctx, "%")
	if err == nil && background.Sleep(ctx, maxMissedBeats*beatInterval) == nil {
		err = r.disconnect(ctx, left)
	}
	if err != nil && ctx.Err() == nil {
		r.log.Warn("the connections of an earlier process were not ended; they time out", "error", err)
	}
}

// Beat records that this process is alive, and releases the leases and connections of processes that
// have not done so for maxMissedBeats intervals. It is called every second.
func (r *Replicas) Beat(ctx context.Context) error {
	var all []replica
	var beats int64
	err := r.store.Write(ctx, func(tx *store.Tx) (err error) {
		// Another process deletes the row if this one stood still.
		const beat = "INSERT INTO replicas (id, beats) VALUES (?, 1) ON CONFLICT (id) DO UPDATE SET beats = replicas.beats + 1 RETURNING beats"
		if beats, err = store.Row[int64](tx, beat, r.store.Process()); err == nil {
			all, err = store.Rows[replica](tx, "SELECT id, beats FROM replicas WHERE id <> ?", r.store.Process())
		}
		return err
	})
	if err != nil {
		return err
	}
	if beats == 1 && r.others != nil && r.opts.Removed != nil {
		r.opts.Removed()
	}
	others := make(map[string]replica, len(all))
	for _, other := range all {
		if before, known := r.others[other.ID]; known && before.Beats == other.Beats {
			other.missed = before.missed + 1
		}
		others[other.ID] = other
	}
	r.others = others
	for _, other := range others {
		switch {
		case other.missed >= maxMissedBeats:
			if err := r.release(ctx, other.ID); err != nil {
				return err
			}
		case r.opts.Isolated && !r.warned && other.missed == 0 && other.Beats > maxMissedBeats:
			r.warned = true
			r.log.WarnContext(ctx, "several servers use this database without a common NATS server: they find each other's work by polling only, which takes seconds; set --nats-url", "replica", other.ID)
		}
	}
	return nil
}

// release releases the leases of a process that has died, and then its connections, for which the next
// beats do not wait. Of several processes the one that deletes the row does it.
func (r *Replicas) release(ctx context.Context, process string) error {
	r.log.WarnContext(ctx, "a replica has died; its leases and its connections are released", "replica", process)
	left, err := r.connections(ctx, process+"/%")
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

// releaseLeases ends the leases of a process ("%" for every process), which makes its webhooks and
// jobs due, and deletes its row, if there is one.
func (r *Replicas) releaseLeases(ctx context.Context, process string) (found bool, err error) {
	err = r.store.Write(ctx, func(tx *store.Tx) error {
		_, err := tx.Exec("UPDATE webhooks SET lease_owner = '', lease_until = 0 WHERE lease_owner LIKE ? AND lease_owner <> ''", process)
		if err == nil {
			_, err = tx.Exec("UPDATE jobs SET lease = '', run_at = ? WHERE lease LIKE ?", tx.Now(), process+"/%")
		}
		if err == nil {
			var n int64
			n, err = tx.Exec("DELETE FROM replicas WHERE id LIKE ?", process)
			found = n > 0
		}
		return err
	})
	return found, err
}

// heldConnection is a connection of a worker.
type heldConnection struct{ AgentID, ConnectionID string }

func (r *Replicas) connections(ctx context.Context, pattern string) ([]heldConnection, error) {
	return store.Rows[heldConnection](r.store.Reads(ctx), "SELECT agent_id, connection_id FROM workers WHERE state > 0 AND connection_id <> '' AND connection_id LIKE ?", pattern)
}

func (r *Replicas) disconnect(ctx context.Context, all []heldConnection) error {
	for _, c := range all {
		if err := r.opts.Disconnect(ctx, c.AgentID, c.ConnectionID); err != nil {
			return err
		}
	}
	return nil
}
