package orchestrator

import (
	"context"

	"comet/models"
	"comet/store"
)

// PushTargets returns where messages are pushed to, ordered by agent.
func (o *Orchestrator) PushTargets(ctx context.Context) ([]models.PushTarget, error) {
	return o.store.PushTargets(ctx)
}

// PushTarget returns where an agent's messages are pushed to, or errs.NotFound.
func (o *Orchestrator) PushTarget(ctx context.Context, agentID string) (models.PushTarget, error) {
	return o.store.PushTarget(ctx, agentID)
}

// SavePushTarget has an agent's messages pushed somewhere, and returns it with its
// times. It is errs.Conflict for an unknown agent.
func (o *Orchestrator) SavePushTarget(ctx context.Context, t models.PushTarget) (models.PushTarget, error) {
	err := o.store.Write(ctx, func(tx *store.Tx) error { return tx.SavePushTarget(&t) })
	return t, err
}

// DeletePushTarget ends the pushing to an agent and reports whether there was any. Unless
// secret is "", only a target that has it is dropped, and not one that has taken its
// place.
func (o *Orchestrator) DeletePushTarget(ctx context.Context, agentID, secret string) (dropped bool, err error) {
	err = o.store.Write(ctx, func(tx *store.Tx) error {
		dropped, err = tx.DeletePushTarget(agentID, secret)
		return err
	})
	return dropped, err
}
