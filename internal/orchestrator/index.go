package orchestrator

import (
	"context"
	"sync"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator/selection"
	"comet/internal/registry"
	"comet/models"
)

// loadIndex reads all agents and workers into the index.
func (o *Orchestrator) loadIndex(ctx context.Context) error {
	workers, err := o.store.Workers(ctx).ChangedSince(time.Time{})
	if err != nil {
		return err
	}
	for _, w := range workers {
		o.workerCache.storeNewest(w)
	}
	o.reindexMu.Lock()
	o.reindexed = []string{} // collect the agents that are reindexed from here on
	o.reindexMu.Unlock()
	var all []selection.Agent
	err = o.store.Agents(ctx).Each(func(a models.Agent) error {
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
	for _, a := range all { // apply changes since they were read
		o.index.Update(a.ID, applyWorker(o.workerCache.get(a.ID)))
	}
	for _, id := range news {
		if err := o.indexAgent(ctx, id); err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	o.indexLoaded.Store(true)
	return nil
}

// workerCache holds the newest version of each worker. Rows arrive in any order: with a commit of
// this process, from other replicas, and all at once.
type workerCache struct {
	mu   sync.Mutex
	byID map[string]models.Worker
}

// storeNewest stores w if it is the newest version of the worker, and returns the newest one.
func (c *workerCache) storeNewest(w models.Worker) models.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.byID[w.AgentID]; ok && known.Version > w.Version {
		return known
	}
	c.byID[w.AgentID] = w
	return w
}

// get returns a worker; the zero value is an agent that never joined.
func (c *workerCache) get(agentID string) models.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byID[agentID]
}

// indexEntry returns the entry of an agent for the index.
func indexEntry(a models.Agent, w models.Worker) selection.Agent {
	e := selection.Agent{ID: a.ID, Type: a.Type, Capabilities: a.Capabilities, Active: a.IsActive}
	if a.SphereID != nil {
		e.SphereID = *a.SphereID
	}
	applyWorker(w)(&e)
	return e
}

// applyWorker returns a function that copies the state of a worker into its entry.
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

// indexWorker puts a worker into the index. It reads the agent if the index does not have it.
func (o *Orchestrator) indexWorker(ctx context.Context, w models.Worker) {
	w = o.workerCache.storeNewest(w)
	if !o.index.Update(w.AgentID, applyWorker(w)) {
		o.failures.Report(ctx, "reading an agent", o.ReindexAgent(ctx, w.AgentID))
	}
}

// ReindexAgent reads an agent again after the registry has changed it. An unknown agent is
// errs.NotFound.
func (o *Orchestrator) ReindexAgent(ctx context.Context, agentID string) error {
	o.reindexMu.Lock()
	defer o.reindexMu.Unlock()
	if o.reindexed != nil {
		o.reindexed = append(o.reindexed, agentID)
	}
	return o.indexAgent(ctx, agentID)
}

// indexAgent reads an agent into the index. The caller holds reindexMu, so that the last read
// wins.
func (o *Orchestrator) indexAgent(ctx context.Context, agentID string) error {
	a, err := o.store.Agents(ctx).Get(agentID)
	if err == nil {
		o.index.Put(indexEntry(a, o.workerCache.get(agentID)))
	}
	return err
}

// refreshWorkers reads the workers that other replicas have changed.
func (o *Orchestrator) refreshWorkers(ctx context.Context) error {
	workers, err := o.store.Workers(ctx).ChangedSince(o.store.Now().Add(-refreshOverlap))
	for _, w := range workers {
		o.indexWorker(ctx, w)
	}
	return err
}

// registryBatch is how many events are read together.
const registryBatch = 500

// followRegistry reads the agents that the events of the registry name until it fails. When it
// starts, the whole registry is read again, because of the changes before.
func (o *Orchestrator) followRegistry(ctx context.Context) (time.Duration, error) {
	sub, err := o.opts.Feed.SubscribeNew(ctx)
	if err != nil {
		return 0, err
	}
	sub.Only(registryEvents()...)
	o.registryStale.Add(1)
	o.waiters.wake(wake{WakeQueue, ""})
	o.registryPosition.Store(sub.Position())
	for {
		news, err := sub.Next(ctx, registryBatch)
		if err != nil {
			return 0, err
		}
		for _, e := range news {
			if err := o.ReindexAgent(ctx, e.Key); err != nil && !errs.Is(err, errs.NotFound) {
				return 0, err
			}
		}
		o.registryPosition.Store(sub.Position())
	}
}

// waitForIndex waits until the index has every change of the registry that was committed before
// the call. Work that no agent seems to offer is rejected only after that: the agent may be new,
// or the process may have just started. After a few seconds it returns errs.Unavailable.
func (o *Orchestrator) waitForIndex(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for {
		known, err := o.indexIsCurrent(ctx)
		switch {
		case known || err != nil:
			return err
		case background.Sleep(limited, 5*time.Millisecond) == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		default:
			return errs.New(errs.Unavailable, "the agents are being loaded; try again")
		}
	}
}

// indexIsCurrent reports whether the index has all committed changes of the registry.
func (o *Orchestrator) indexIsCurrent(ctx context.Context) (bool, error) {
	if !o.indexLoaded.Load() || o.registryStale.Load() != o.registryFresh.Load() {
		return false, nil
	}
	if o.opts.Feed == nil {
		return true, nil
	}
	read := o.registryPosition.Load()
	waiting, err := o.store.Events(ctx).Unnumbered(registryEvents()...)
	if err != nil || waiting {
		return false, err
	}
	head, err := o.store.Events(ctx).LastPosition()
	if err != nil {
		return false, err
	}
	news, err := o.store.Events(ctx).Between(read, head, registryEvents(), 1)
	return len(news) == 0, err
}

func registryEvents() []models.EventType {
	return []models.EventType{events.AgentCreated, events.AgentUpdated, events.AgentDeactivated}
}

// UpdateCapabilities replaces the capabilities of an agent (PROTOCOL_V5 §2.4). Its attempts
// continue. The errors are those of registry.Update, and errs.Unavailable without a registry.
func (o *Orchestrator) UpdateCapabilities(ctx context.Context, by models.Principal, agentID string, capabilities []string) (registry.Updated, error) {
	if o.opts.Registry == nil {
		return registry.Updated{}, errs.New(errs.Unavailable, "capabilities cannot be changed here")
	}
	out, err := o.opts.Registry.Update(ctx, by, agentID, registry.AgentPatch{
		Capabilities: models.Optional[[]string]{Set: true, Value: capabilities},
	}, nil)
	if err == nil {
		err = o.ReindexAgent(ctx, agentID) // other replicas follow the event
	}
	return out, err
}

// CachedWorker returns a worker without reading the database. Changes of other processes are
// visible after Options.Poll. It is the zero value for an agent that never joined.
func (o *Orchestrator) CachedWorker(agentID string) models.Worker { return o.workerCache.get(agentID) }

// Agent returns a registered agent, or errs.NotFound.
func (o *Orchestrator) Agent(ctx context.Context, agentID string) (models.Agent, error) {
	return o.store.Agents(ctx).Get(agentID)
}
