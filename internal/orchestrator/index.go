package orchestrator

import (
	"context"
	"time"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator/selection"
	"comet/internal/orchestrator/wakeups"
	"comet/internal/registry"
	"comet/models"
	"comet/store"
)

// loadIndex reads all agents and workers into the index. The workers come first, so that no agent seems to be offline.
func (o *Orchestrator) loadIndex(ctx context.Context) error {
	workers, err := o.store.Workers(ctx).ChangedSince(time.Time{})
	for _, w := range workers {
		o.putWorker(w)
	}
	if err != nil {
		return err
	}
	err = o.store.Agents(ctx).Each(func(a models.Agent) error {
		o.indexAgent(a)
		return nil
	})
	if err == nil && o.opts.Alone && !o.indexLoaded.Load() {
		err = o.countSlots(ctx)
	}
	if err == nil && !o.indexLoaded.Swap(true) {
		o.timers.Changed.Set()
	}
	return err
}

// countSlots counts the open attempts of all agents. It runs in the writer, so that no attempt begins or ends
// meanwhile.
func (o *Orchestrator) countSlots(ctx context.Context) error {
	return o.store.Write(ctx, func(tx *store.Tx) error {
		counts, err := tx.Tasks().InFlight()
		for _, c := range counts {
			o.index.Change(c.AgentID, func(a *selection.Agent) bool {
				a.Worker.InFlight, a.Claims = c.Attempts, c.Attempts
				return true
			})
		}
		return err
	})
}

// indexAgent puts a registered agent into the index, unless that has a newer version: rows arrive in any order, from
// commits of this process and of other replicas, and all at once.
func (o *Orchestrator) indexAgent(a models.Agent) {
	o.index.Change(a.ID, func(now *selection.Agent) bool {
		now.Type, now.Capabilities, now.Active, now.SphereID, now.SelfRegistered = a.Type, a.Capabilities, a.IsActive, 0, a.SelfRegistered
		if a.SphereID != nil {
			now.SphereID = *a.SphereID
		}
		newer := a.Version >= now.Version
		now.Version = a.Version
		return newer
	})
}

// putWorker puts a worker into the index, unless that has a newer version, and reports whether its agent is there.
func (e *environment) putWorker(w models.Worker) (known bool) {
	e.index.Change(w.AgentID, func(now *selection.Agent) bool {
		known = now.Version != 0
		newer := w.Version >= now.Worker.Version
		if e.opts.Alone {
			w.InFlight, w.LastAssignedAt = 0, now.Worker.LastAssignedAt
		}
		now.Worker = w
		now.Worker.InFlight += now.Claims
		return newer
	})
	return known
}

// indexWorker is putWorker that reads the agent if the index does not have it.
func (o *Orchestrator) indexWorker(ctx context.Context, w models.Worker) {
	if !o.putWorker(w) {
		o.failures.Report(ctx, "reading an agent", o.ReindexAgent(ctx, w.AgentID))
	}
}

// ReindexAgent reads an agent again after the registry has changed it. An unknown agent is errs.NotFound.
func (o *Orchestrator) ReindexAgent(ctx context.Context, agentID string) error {
	a, err := o.store.Agents(ctx).Get(agentID)
	if err == nil {
		o.indexAgent(a)
	}
	return err
}

// refreshOverlap is the period for which changed workers are read again: clocks of replicas differ, and a commit may be
// later than the times in its rows.
const refreshOverlap = 10 * time.Second

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

// followRegistry reads the agents that the events of the registry name until it fails. When it starts, the whole
// registry is read again, because of the changes before.
func (o *Orchestrator) followRegistry(ctx context.Context) (time.Duration, error) {
	sub, err := o.opts.Feed.SubscribeNew(ctx)
	if err != nil {
		return 0, err
	}
	sub.Only(registryEvents()...)
	o.registryStale.Add(1)
	o.waiters.Wake(wakeups.Wake{Kind: WakeQueue})
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

// waitForIndex waits until the index has every change of the registry that was committed before the call. Work that no
// agent seems to offer is rejected only after that: the agent may be new, or the process may have just started. After a
// few seconds it returns errs.Unavailable.
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

// UpdateAgent changes what an agent declares (PROTOCOL_V5 §2.4). Its attempts continue. The errors are those of
// registry.Update, and errs.Unavailable without a registry.
func (o *Orchestrator) UpdateAgent(ctx context.Context, by models.Principal, agentID string, patch registry.AgentPatch) (registry.Updated, error) {
	if o.opts.Registry == nil {
		return registry.Updated{}, errs.New(errs.Unavailable, "agents cannot be changed here")
	}
	return o.opts.Registry.Update(ctx, by, agentID, patch, nil)
}

// CachedWorker returns a worker without reading the database. Changes of other processes are visible after
// Options.Poll. It is the zero value for an agent that never joined.
func (o *Orchestrator) CachedWorker(agentID string) models.Worker { return o.index.Worker(agentID) }

// Agent returns a registered agent, or errs.NotFound.
func (o *Orchestrator) Agent(ctx context.Context, agentID string) (models.Agent, error) {
	return o.store.Agents(ctx).Get(agentID)
}

// IsSelfRegistered reports whether an agent registered itself without proof of its identity.
func (o *Orchestrator) IsSelfRegistered(ctx context.Context, agentID string) (bool, error) {
	if a, _ := o.index.Agent(agentID); a.Version != 0 {
		return a.SelfRegistered, nil
	}
	a, err := o.Agent(ctx, agentID)
	return a.SelfRegistered, err
}

// AgentType returns the type of an active agent, "" for none; ok is false for an agent that is unknown or not active.
func (o *Orchestrator) AgentType(ctx context.Context, agentID string) (kind string, ok bool, err error) {
	if a, known := o.index.Agent(agentID); known && a.Active {
		return a.Type, true, nil
	}
	a, err := o.store.Agents(ctx).Get(agentID)
	if errs.Is(err, errs.NotFound) {
		return "", false, nil
	}
	return a.Type, err == nil && a.IsActive, err
}

// Index returns the index of the agents. Changes of other processes are visible after Options.Poll.
func (e *environment) Index() *selection.Index { return e.index }

// CapabilitiesOf returns the capabilities of the active agents of a type, of all for "".
func (e *environment) CapabilitiesOf(agentType string) []string {
	const most = 50
	all := e.index.CapabilitiesOf(agentType)
	return all[:min(len(all), most)]
}
