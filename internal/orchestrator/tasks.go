package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/models"
)

// maxTimeline is how many events of a task are shown.
const maxTimeline = 1000

// Detail is a task with what is known of it.
type Detail struct {
	Task     models.Task
	Input    models.TaskInput
	Attempts []models.Attempt
	Timeline []models.Event
	// Question is what its agent, or that of one of its parts, waits to be told, nil where
	// none does.
	Question *Question
}

// Task returns a task, or errs.NotFound.
func (o *Orchestrator) Task(ctx context.Context, id string) (models.Task, error) {
	t, err := o.store.Task(ctx, id)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no task %q", id)
	}
	return t, err
}

// Detail returns a task with its attempts and its events, as far as they are kept.
func (o *Orchestrator) Detail(ctx context.Context, id string) (d Detail, err error) {
	if d.Task, err = o.Task(ctx, id); err != nil {
		return d, err
	}
	if d.Input, err = o.store.TaskInput(ctx, id); err != nil {
		return d, err
	}
	if d.Attempts, err = o.store.Attempts(ctx, id); err != nil {
		return d, err
	}
	if d.Timeline, err = o.store.Timeline(ctx, id, maxTimeline); err != nil {
		return d, err
	}
	asking, ok, err := o.TaskAwaitingReply(ctx, d.Task)
	if err != nil || !ok {
		return d, err
	}
	asked, err := o.OpenQuestion(ctx, asking)
	d.Question = &asked.Question
	return d, err
}

// Tasks returns the page of tasks that q selects, newest first.
func (o *Orchestrator) Tasks(ctx context.Context, q models.TaskQuery) ([]models.Task, error) {
	return o.store.Tasks(ctx, q)
}

// Session returns a session, or errs.NotFound.
func (o *Orchestrator) Session(ctx context.Context, id string) (models.Session, error) {
	s, err := o.store.Session(ctx, id)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no session %q", id)
	}
	return s, err
}

// Sessions returns up to limit sessions, newest first, of an owner ("" for everybody),
// behind a place.
func (o *Orchestrator) Sessions(ctx context.Context, owner string, before models.TaskCursor, limit int) ([]models.Session, error) {
	return o.store.Sessions(ctx, owner, before, limit)
}

// Output calls each with the pieces of what the newest attempt has put out, from a byte
// on, in order. It returns errs.NotFound for an unknown task.
func (o *Orchestrator) Output(ctx context.Context, id string, stream models.OutputStream, from int64, each func(models.OutputChunk) error) error {
	t, err := o.Task(ctx, id)
	if err != nil {
		return err
	}
	return o.OutputOf(ctx, t, stream, from, each)
}

// OutputOf is Output for a task as it was read.
func (o *Orchestrator) OutputOf(ctx context.Context, t models.Task, stream models.OutputStream, from int64, each func(models.OutputChunk) error) error {
	attempt := t.Attempt
	if t.State == models.TaskDone && t.Attempt > 1 { // the one that succeeded may not be the newest
		all, err := o.store.Attempts(ctx, t.ID)
		if err != nil {
			return err
		}
		attempt = succeededAttempt(t, all)
	}
	return o.store.Outputs(ctx, t.ID, attempt, stream, from, each)
}

// HasUnalignedOutput reports whether a piece of what the newest attempt has put out is longer or
// shorter than what it stands for: until the task has ended, which puts them together, what is
// behind it has no place among the bytes of the whole.
func (o *Orchestrator) HasUnalignedOutput(ctx context.Context, t models.Task, stream models.OutputStream) (bool, error) {
	return o.store.HasUnassigned(ctx, t.ID, t.Attempt, stream)
}

// succeededAttempt is the attempt that succeeded, which may not be the newest.
func succeededAttempt(t models.Task, all []models.Attempt) int {
	for _, a := range all {
		if a.State == models.AttemptSucceeded {
			return a.Attempt
		}
	}
	return t.Attempt
}

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
