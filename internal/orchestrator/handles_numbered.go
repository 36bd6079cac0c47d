package orchestrator

import (
	"context"

	"comet/models"
)

// TasksByNumber returns up to limit tasks, the newest first, that an owner has asked for
// and whose short names have a number, whatever their context.
func (o *Orchestrator) TasksByNumber(ctx context.Context, owner string, number, limit int) (out []models.Task, err error) {
	ids, err := o.store.TasksNumbered(ctx, owner, number, limit)
	for _, id := range ids {
		if err != nil {
			break
		}
		var t models.Task
		if t, err = o.Task(ctx, id); err == nil {
			out = append(out, t)
		}
	}
	return out, err
}
