package orchestrator

import (
	"context"
	"sync"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator/selection"
	"comet/models"
)

// fill reads every agent and worker into the index.
func (o *Orchestrator) fill(ctx context.Context) error {
	workers, err := o.store.Workers(ctx, time.Time{})
	if err != nil {
		return err
	}
	for _, w := range workers {
		o.crowd.newest(w)
	}
	o.learning.Lock()
	o.learned = []string{} // from here on it is noted who is read anew
	o.learning.Unlock()
	var all []selection.Agent
	err = o.store.EachAgent(ctx, func(a models.Agent) error {
		all = append(all, entry(a, o.crowd.worker(a.ID)))
		return nil
	})
	o.learning.Lock()
	defer o.learning.Unlock()
	news := o.learned
	o.learned = nil
	if err != nil {
		return err
	}
	o.index.Replace(all)
	for _, a := range all { // what changed while they were read
		o.index.Update(a.ID, apply(o.crowd.worker(a.ID)))
	}
	for _, id := range news {
		if err := o.put(ctx, id); err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
	}
	o.hub.fill()
	return nil
}

// crowd keeps the newest that is known of each worker, because rows come in any order:
// with a verb's commit, from other replicas, and all at once.
type crowd struct {
	mu  sync.Mutex
	all map[string]models.Worker
}

// newest returns the newest of what is known of a worker and of w, and keeps it.
func (c *crowd) newest(w models.Worker) models.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.all[w.AgentID]; ok && known.Version > w.Version {
		return known
	}
	c.all[w.AgentID] = w
	return w
}

// worker returns what is known of one; the zero value is one that never joined.
func (c *crowd) worker(agentID string) models.Worker {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[agentID]
}

// entry is what selection knows of an agent.
func entry(a models.Agent, w models.Worker) selection.Agent {
	e := selection.Agent{ID: a.ID, Type: a.Type, Capabilities: a.Capabilities, Active: a.IsActive}
	if a.SphereID != nil {
		e.Sphere = *a.SphereID
	}
	apply(w)(&e)
	return e
}

// apply makes what a worker says of itself what the index knows.
func apply(w models.Worker) func(*selection.Agent) {
	return func(e *selection.Agent) {
		switch w.State {
		case models.WorkerOnline:
			e.State = selection.Online
		case models.WorkerBusy:
			e.State = selection.Busy
		default:
			e.State = selection.Offline
		}
		e.Window, e.InFlight, e.Load, e.LastUsed, e.LastSeen = w.Concurrency, w.InFlight, w.Load, w.LastAssignedAt, w.LastSeenAt
		e.BreakerUntil, e.MaxDepth = w.BreakerUntil, w.MaxDepth
	}
}

// learn puts a worker into the index. One whose agent is not known there is known after
// it was read.
func (o *Orchestrator) learn(ctx context.Context, w models.Worker) {
	w = o.crowd.newest(w)
	if !o.index.Update(w.AgentID, apply(w)) {
		o.report(ctx, "reading an agent", o.ReindexAgent(ctx, w.AgentID))
	}
}

// ReindexAgent reads an agent again, for when the registry has changed it. One that is not
// there is errs.NotFound.
func (o *Orchestrator) ReindexAgent(ctx context.Context, agentID string) error {
	o.learning.Lock()
	defer o.learning.Unlock()
	if o.learned != nil {
		o.learned = append(o.learned, agentID)
	}
	return o.put(ctx, agentID)
}

// put reads an agent into the index. One after the other, so that what was read last is
// what the index knows.
func (o *Orchestrator) put(ctx context.Context, agentID string) error {
	a, err := o.store.Agent(ctx, agentID)
	if err == nil {
		o.index.Put(entry(a, o.crowd.worker(agentID)))
	}
	return err
}

// refresh reads the workers that others have changed.
func (o *Orchestrator) refresh(ctx context.Context) error {
	workers, err := o.store.Workers(ctx, o.store.Now().Add(-overlap))
	for _, w := range workers {
		o.learn(ctx, w)
	}
	return err
}
