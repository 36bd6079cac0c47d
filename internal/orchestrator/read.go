package orchestrator

import (
	"context"
	"time"

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

// Wait returns the task once it has ended, or as it is when ctx ends or patience has
// passed. Who waits is the token; where it, or all of them together, wait for as much
// as they may, the task comes back as it is, with errs.Busy. A who of "" is somebody whose
// number is bounded elsewhere.
func (o *Orchestrator) Wait(ctx context.Context, who, id string, patience time.Duration) (models.Task, error) {
	return o.waitFor(ctx, WakeEnd, who, id, patience, func(t models.Task) bool { return t.State.Ended() })
}

// WaitForChange is Wait for any change after a version.
func (o *Orchestrator) WaitForChange(ctx context.Context, who, id string, version int64, patience time.Duration) (models.Task, error) {
	return o.waitFor(ctx, WakeTask, who, id, patience, func(t models.Task) bool { return t.Version > version || t.State.Ended() })
}

func (o *Orchestrator) waitFor(ctx context.Context, kind WakeKind, who, id string, patience time.Duration, enough func(models.Task) bool) (models.Task, error) {
	changed, stop := o.waiters.subscribe(kind, id)
	defer stop()
	over := time.NewTimer(patience)
	defer over.Stop()
	for placed := false; ; {
		t, err := o.Task(ctx, id)
		if err != nil || enough(t) {
			return t, err
		}
		if !placed {
			release, err := o.acquireWaiter(who)
			if err != nil {
				return t, err
			}
			defer release()
			placed = true
		}
		look := time.NewTimer(pollsPerRecheck * o.opts.Poll) // what another replica does may not be heard
		select {
		case <-changed:
		case <-look.C:
		case <-over.C:
			look.Stop()
			return t, nil
		case <-ctx.Done():
			look.Stop()
			return t, nil
		}
		look.Stop()
	}
}

// pollsPerRecheck is how many polls pass before somebody who waits looks without being woken:
// there may be thousands.
const pollsPerRecheck = 4

// Messages returns up to limit messages that an agent has not acknowledged, the most
// urgent first.
func (o *Orchestrator) Messages(ctx context.Context, agentID string, limit int) ([]models.InboxMessage, error) {
	return o.store.Inbox(ctx, agentID, limit)
}

// Acknowledge notes that an agent has messages, which it is not told again, and returns
// how many of them were still in its inbox. An agent that has its assignment works on
// it.
func (o *Orchestrator) Acknowledge(ctx context.Context, agentID string, ids []string) (n int64, err error) {
	if len(ids) == 0 {
		return 0, nil
	}
	err = o.transact(ctx, func(op *operation) (err error) {
		n, err = op.tx.Acknowledge(agentID, ids)
		return err
	})
	return n, err
}
