package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
)

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
