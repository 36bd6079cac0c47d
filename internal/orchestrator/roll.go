package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/models"
)

// Workers returns up to limit workers in the order of their agents' ids, behind the
// one with the id after, "" for the first.
func (o *Orchestrator) Workers(ctx context.Context, after string, limit int) ([]models.Worker, error) {
	return o.store.WorkersAfter(ctx, after, limit)
}

// Worker returns what is known of an agent as a worker, or errs.NotFound for one that
// never joined.
func (o *Orchestrator) Worker(ctx context.Context, agentID string) (models.Worker, error) {
	w, err := o.store.Worker(ctx, agentID)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no worker %q", agentID)
	}
	return w, err
}
