package orchestrator

import (
	"context"

	"comet/models"
)

// Known returns what this process knows of a worker, without asking the database: what
// other processes changed is known after a Poll. It is the zero value for an agent that
// never joined.
func (o *Orchestrator) Known(agentID string) models.Worker { return o.crowd.worker(agentID) }

// Agent returns a registered agent, or errs.NotFound.
func (o *Orchestrator) Agent(ctx context.Context, agentID string) (models.Agent, error) {
	return o.store.Agent(ctx, agentID)
}

// StillTold returns those of the messages that are in an agent's inbox.
func (o *Orchestrator) StillTold(ctx context.Context, agentID string, ids []string) ([]string, error) {
	return o.store.StillTold(ctx, agentID, ids)
}
