package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/models"
)

// AgentType returns the type of a registered agent, "" for one that has none; ok is
// false for one that is not known or not active.
func (o *Orchestrator) AgentType(ctx context.Context, agentID string) (kind string, ok bool, err error) {
	if a, known := o.index.Agent(agentID); known && a.Active {
		return a.Type, true, nil
	}
	a, err := o.store.Agent(ctx, agentID) // it may be new
	if errs.Is(err, errs.NotFound) {
		return "", false, nil
	}
	return a.Type, err == nil && a.IsActive, err
}

// TaskWithInput is what a task was asked for with, and where it stands.
type TaskWithInput struct {
	Task  models.Task
	Input models.TaskInput
	// Override is what it has differently from its class.
	Override Override
}

// TaskWithInput returns a task with what it was asked for with, or errs.NotFound.
func (o *Orchestrator) TaskWithInput(ctx context.Context, taskID string) (out TaskWithInput, err error) {
	if out.Task, err = o.Task(ctx, taskID); err != nil {
		return out, err
	}
	if out.Input, err = o.store.TaskInput(ctx, taskID); err != nil {
		return out, err
	}
	out.Override, err = overrideOf(out.Input)
	return out, err
}

// OpenTasksOf returns what an agent has at the moment, up to as many as it can have.
func (o *Orchestrator) OpenTasksOf(ctx context.Context, agentID string) (out []TaskWithInput, err error) {
	ids, err := o.store.OpenTasksOf(ctx, agentID, MaxConcurrency)
	for _, id := range ids {
		if err != nil {
			break
		}
		var order TaskWithInput
		if order, err = o.TaskWithInput(ctx, id); err == nil {
			out = append(out, order)
		}
	}
	return out, err
}

// Attempts returns the attempts at a task, the first one first.
func (o *Orchestrator) Attempts(ctx context.Context, taskID string) ([]models.Attempt, error) {
	return o.store.Attempts(ctx, taskID)
}

// CapabilitiesOf returns what the active agents of a type offer, of all for "".
func (o *Orchestrator) CapabilitiesOf(agentType string) []string {
	const most = 50
	all := o.index.CapabilitiesOf(agentType)
	return all[:min(len(all), most)]
}

// IsProcessed reports whether a message of an agent has had its effect.
func (o *Orchestrator) IsProcessed(ctx context.Context, agentID, messageID string) (bool, error) {
	return o.store.IsProcessed(ctx, agentID, messageID)
}
