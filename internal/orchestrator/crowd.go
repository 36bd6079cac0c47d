package orchestrator

import (
	"context"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator/selection"
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
