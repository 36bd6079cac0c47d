package orchestrator

import (
	"context"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator/selection"
	"comet/internal/registry"
	"comet/models"
)

// loadIndex reads every agent and worker into the index.
func (o *Orchestrator) loadIndex(ctx context.Context) error {
	workers, err := o.store.Workers(ctx, time.Time{})
	if err != nil {
		return err
	}
	for _, w := range workers {
		o.workerCache.storeNewest(w)
	}
	o.reindexMu.Lock()
	o.reindexed = []string{} // from here on it is noted who is read anew
	o.reindexMu.Unlock()
	var all []selection.Agent
	err = o.store.EachAgent(ctx, func(a models.Agent) error {
		all = append(all, indexEntry(a, o.workerCache.get(a.ID)))
		return nil
	})
	o.reindexMu.Lock()
	defer o.reindexMu.Unlock()
	news := o.reindexed
	o.reindexed = nil
	if err != nil {
		return err
	}
	o.index.Replace(all)
	for _, a := range all { // what changed while they were read
		o.index.Update(a.ID, applyWorker(o.workerCache.get(a.ID)))
	}
	for _, id := range news {
		if err := o.indexAgent(ctx, id); err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	o.waiters.fill()
	return nil
}

// workerCache keeps the newest that is known of each worker, because rows come in any order:
// with a verb's commit, from other replicas, and all at once.
type workerCache struct {
	mu   sync.Mutex
	byID map[string]models.Worker
}

// storeNewest returns the newest of what is known of a worker and of w, and keeps it.
func (c *workerCache) storeNewest(w models.Worker) models.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.byID[w.AgentID]; ok && known.Version > w.Version {
		return known
	}
	c.byID[w.AgentID] = w
	return w
}

// get returns what is known of one; the zero value is one that never joined.
func (c *workerCache) get(agentID string) models.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[agentID]
}

// indexEntry is what selection knows of an agent.
func indexEntry(a models.Agent, w models.Worker) selection.Agent {
	e := selection.Agent{ID: a.ID, Type: a.Type, Capabilities: a.Capabilities, Active: a.IsActive}
	if a.SphereID != nil {
		e.SphereID = *a.SphereID
	}
	applyWorker(w)(&e)
	return e
}

// applyWorker makes what a worker says of itself what the index knows.
func applyWorker(w models.Worker) func(*selection.Agent) {
	return func(e *selection.Agent) {
		switch w.State {
		case models.WorkerOnline:
			e.State = selection.Online
		case models.WorkerBusy:
			e.State = selection.Busy
		default:
			e.State = selection.Offline
		}
		e.Concurrency, e.InFlight, e.Load, e.LastAssignedAt, e.LastSeenAt = w.Concurrency, w.InFlight, w.Load, w.LastAssignedAt, w.LastSeenAt
		e.BreakerUntil, e.MaxDepth = w.BreakerUntil, w.MaxDepth
	}
}

// indexWorker puts a worker into the index. One whose agent is not known there is known after
// it was read.
func (o *Orchestrator) indexWorker(ctx context.Context, w models.Worker) {
	w = o.workerCache.storeNewest(w)
	if !o.index.Update(w.AgentID, applyWorker(w)) {
		o.logFailure(ctx, "reading an agent", o.ReindexAgent(ctx, w.AgentID))
	}
}

// ReindexAgent reads an agent again, for when the registry has changed it. One that is not
// there is errs.NotFound.
func (o *Orchestrator) ReindexAgent(ctx context.Context, agentID string) error {
	o.reindexMu.Lock()
	defer o.reindexMu.Unlock()
	if o.reindexed != nil {
		o.reindexed = append(o.reindexed, agentID)
	}
	return o.indexAgent(ctx, agentID)
}

// indexAgent reads an agent into the index. One after the other, so that what was read last is
// what the index knows.
func (o *Orchestrator) indexAgent(ctx context.Context, agentID string) error {
	a, err := o.store.Agent(ctx, agentID)
	if err == nil {
		o.index.Put(indexEntry(a, o.workerCache.get(agentID)))
	}
	return err
}

// refreshWorkers reads the workers that others have changed.
func (o *Orchestrator) refreshWorkers(ctx context.Context) error {
	workers, err := o.store.Workers(ctx, o.store.Now().Add(-refreshOverlap))
	for _, w := range workers {
		o.indexWorker(ctx, w)
	}
	return err
}

// registryBatch is how many events are read at a time.
const registryBatch = 500

// followRegistry reads what the registry's events tell of, on whichever replica it happened.
// It begins anew from the newest event after each failure, and has the whole registry
// read again then.
func (o *Orchestrator) followRegistry(ctx context.Context) {
	for ctx.Err() == nil {
		err := o.followRegistryOnce(ctx)
		if ctx.Err() == nil {
			o.logFailure(ctx, "following the registry", err)
			o.registryStale.Add(1)
			pause := time.NewTimer(o.opts.Poll)
			select {
			case <-pause.C:
			case <-ctx.Done():
				pause.Stop()
			}
		}
	}
}

func (o *Orchestrator) followRegistryOnce(ctx context.Context) error {
	sub, err := o.opts.Feed.SubscribeNew(ctx)
	if err != nil {
		return err
	}
	sub.Only(registryEvents()...)
	o.registryStale.Add(1) // what changed before the subscription
	o.waiters.wake(wake{WakeQueue, ""})
	o.registryPosition.Store(sub.Position())
	for {
		news, err := sub.Next(ctx, registryBatch)
		if err != nil {
			return err
		}
		for _, e := range news {
			if err := o.ReindexAgent(ctx, e.Key); err != nil && !errs.Is(err, errs.NotFound) {
				return err
			}
		}
		o.registryPosition.Store(sub.Position())
	}
}

// waitForIndex waits until the index knows every change of the registry that was committed
// before the call. It is asked before work is refused that
// nobody offers: the agent may have been registered a moment ago, or the process have
// begun. After a short patience it is errs.Unavailable.
func (o *Orchestrator) waitForIndex(ctx context.Context) error {
	const patience = 5 * time.Second
	end := time.NewTimer(patience)
	defer end.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		known, err := o.indexIsCurrent(ctx)
		if known || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-end.C:
			return errs.New(errs.Unavailable, "the agents are being read, try again")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// indexIsCurrent reports whether no change of the registry is still to be read.
func (o *Orchestrator) indexIsCurrent(ctx context.Context) (bool, error) {
	if !o.waiters.isFilled() || o.registryStale.Load() != o.registryFresh.Load() {
		return false, nil
	}
	if o.opts.Feed == nil {
		return true, nil
	}
	read := o.registryPosition.Load()
	waiting, err := o.store.EventsUnnumberedOf(ctx, registryEvents())
	if err != nil || waiting {
		return false, err
	}
	head, err := o.store.LastPosition(ctx)
	if err != nil {
		return false, err
	}
	news, err := o.store.EventsOf(ctx, read, head, registryEvents(), 1)
	return len(news) == 0, err
}

func registryEvents() []models.EventType {
	return []models.EventType{models.EventAgentCreated, models.EventAgentUpdated, models.EventAgentDeactivated}
}

// UpdateCapabilities replaces what an agent offers (PROTOCOL_V5 §2.4). What it has
// already goes on. The registry judges the names; the errors are those of its Update,
// and errs.Unavailable where there is no registry.
func (o *Orchestrator) UpdateCapabilities(ctx context.Context, by models.Principal, agentID string, capabilities []string) (registry.Updated, error) {
	if o.opts.Registry == nil {
		return registry.Updated{}, errs.New(errs.Unavailable, "capabilities cannot be changed here")
	}
	out, err := o.opts.Registry.Update(ctx, by, agentID, models.AgentPatch{
		Capabilities: models.Optional[[]string]{Set: true, Value: capabilities},
	}, nil)
	if err == nil {
		err = o.ReindexAgent(ctx, agentID) // others hear of it by the event
	}
	return out, err
}

// CachedWorker returns what this process knows of a worker, without asking the database: what
// other processes changed is known after a Poll. It is the zero value for an agent that
// never joined.
func (o *Orchestrator) CachedWorker(agentID string) models.Worker { return o.workerCache.get(agentID) }

// Agent returns a registered agent, or errs.NotFound.
func (o *Orchestrator) Agent(ctx context.Context, agentID string) (models.Agent, error) {
	return o.store.Agent(ctx, agentID)
}
