package orchestrator

import (
	"context"

	"comet/models"
)

// CachedWorker returns what this process knows of a worker, without asking the database: what
// other processes changed is known after a Poll. It is the zero value for an agent that
// never joined.
func (o *Orchestrator) CachedWorker(agentID string) models.Worker { return o.workerCache.get(agentID) }

// Agent returns a registered agent, or errs.NotFound.
func (o *Orchestrator) Agent(ctx context.Context, agentID string) (models.Agent, error) {
	return o.store.Agent(ctx, agentID)
}

// MessagePending returns those of the messages that are in an agent's inbox.
func (o *Orchestrator) MessagePending(ctx context.Context, agentID string, ids []string) ([]string, error) {
	return o.store.MessagePending(ctx, agentID, ids)
}
