package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

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
func (o *Orchestrator) CachedWorker(agentID string) models.Worker { return o.index.Worker(agentID) }

// Agent returns a registered agent, or errs.NotFound.
func (o *Orchestrator) Agent(ctx context.Context, agentID string) (models.Agent, error) {
	return o.store.Agents(ctx).Get(agentID)
}

// AgentType returns the type of an active agent, "" for none; ok is false for an agent that is
// unknown or not active.
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

// CapabilitiesOf returns the capabilities of the active agents of a type, of all for "".
func (e *environment) CapabilitiesOf(agentType string) []string {
	const most = 50
	all := e.index.CapabilitiesOf(agentType)
	return all[:min(len(all), most)]
}
