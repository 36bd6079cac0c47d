package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"

	"comet/internal/errs"
	"comet/internal/orchestrator/selection"
	"comet/models"
	"comet/store"
)

// maxTimeline limits the events in a Detail.
const maxTimeline = 1000

// Detail is a task with its input, attempts and events.
type Detail struct {
	Task     models.Task
	Input    models.TaskInput
	Attempts []models.Attempt
	Timeline []models.Event
	Decision *selection.Decision // of the last assignment, nil before the first
	// Question is the open question of its agent, or of an agent of one of its subtasks, nil for
	// none.
	Question *Question
}

// Candidate is an agent that was considered for a task.
type Candidate = selection.Ranked

// Routing shows a decision of a class with Policy.Weighted.
type Routing = selection.Routing

// Task returns a task, or errs.NotFound.
func (o *Orchestrator) Task(ctx context.Context, id string) (models.Task, error) {
	t, err := o.store.Tasks(ctx).Get(id)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no task %q", id)
	}
	return t, err
}

// Detail returns a task with its attempts and the events that were not purged.
func (o *Orchestrator) Detail(ctx context.Context, id string) (d Detail, err error) {
	if d.Task, err = o.Task(ctx, id); err != nil {
		return d, err
	}
	var failed [4]error
	d.Input, failed[0] = o.store.Tasks(ctx).Input(d.Task)
	d.Attempts, failed[1] = o.attemptsOf(ctx, d.Task)
	d.Timeline, failed[2] = o.store.Events(ctx).Timeline(id, maxTimeline)
	failed[3] = json.Unmarshal([]byte(cmp.Or(string(d.Task.Decision), "null")), &d.Decision)
	if err := cmp.Or(failed[:]...); err != nil {
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
func (o *Orchestrator) Tasks(ctx context.Context, q store.TaskQuery) ([]models.ListedTask, error) {
	return o.store.Tasks(ctx).List(q)
}

// Session returns a session, or errs.NotFound.
func (o *Orchestrator) Session(ctx context.Context, id string) (models.Session, error) {
	s, err := o.store.Sessions(ctx).Get(id)
	if errs.Is(err, errs.NotFound) {
		err = errs.New(errs.NotFound, "there is no session %q", id)
	}
	return s, err
}

// Sessions returns the page of sessions that q selects, newest first.
func (o *Orchestrator) Sessions(ctx context.Context, q store.SessionQuery) ([]models.Session, error) {
	return o.store.Sessions(ctx).List(q)
}

// Output calls each with the chunks of the newest attempt's output, from a byte offset on, in order.
func (o *Orchestrator) Output(ctx context.Context, t models.Task, stream models.OutputStream, from int64, each func(models.OutputChunk) error) error {
	if stream == models.StreamResult && t.Output != nil {
		if from >= t.OutputBytes {
			return nil
		}
		return each(models.OutputChunk{Stream: stream, Start: from, Data: t.Output[from:]})
	}
	attempt, err := succeededAttempt(t, o.store.Tasks(ctx).EarlierAttempts)
	if err != nil {
		return err
	}
	return o.store.Tasks(ctx).Outputs(t.ID, attempt, stream, from, each)
}

// HasUnalignedOutput reports whether a chunk of the newest attempt's output has another length than
// its span. Byte offsets after it are unknown until the task ends, when the chunks are joined.
func (o *Orchestrator) HasUnalignedOutput(ctx context.Context, t models.Task, stream models.OutputStream) (bool, error) {
	return o.store.Tasks(ctx).HasUnassigned(t.ID, t.Attempt, stream)
}

// TaskWithInput is a task with its input.
type TaskWithInput struct {
	Task  models.Task
	Input models.TaskInput
	// Override is what the task sets differently from its class.
	Override Override
}

// TaskWithInput returns a task with its input, or errs.NotFound.
func (o *Orchestrator) TaskWithInput(ctx context.Context, taskID string) (TaskWithInput, error) {
	t, err := o.Task(ctx, taskID)
	if err != nil {
		return TaskWithInput{}, err
	}
	return o.withInput(ctx, t)
}

// TaskOfMessage is TaskWithInput for the task of a message. It does not read an assignment that this
// process has just committed.
func (o *Orchestrator) TaskOfMessage(ctx context.Context, m models.InboxMessage) (TaskWithInput, error) {
	if t := o.store.Tasks(ctx).Committed(m.TaskID); t != nil && t.MessageID == m.ID {
		return o.withInput(ctx, *t)
	}
	return o.TaskWithInput(ctx, m.TaskID)
}

func (o *Orchestrator) withInput(ctx context.Context, t models.Task) (out TaskWithInput, err error) {
	out.Task = t
	if out.Input, err = o.store.Tasks(ctx).Input(t); err != nil {
		return out, err
	}
	out.Override, err = overrideOf(out.Input)
	return out, err
}

// OpenTasksOf returns the open tasks of an agent, at most MaxConcurrency.
func (o *Orchestrator) OpenTasksOf(ctx context.Context, agentID string) (out []TaskWithInput, err error) {
	ids, err := o.store.Tasks(ctx).OpenOf(agentID, MaxConcurrency)
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
	t, err := o.Task(ctx, taskID)
	if err != nil {
		return nil, err
	}
	return o.attemptsOf(ctx, t)
}

func (o *Orchestrator) attemptsOf(ctx context.Context, t models.Task) (all []models.Attempt, err error) {
	newest, held := t.NewestAttempt()
	if t.Attempt > 1 || !held {
		all, err = o.store.Tasks(ctx).EarlierAttempts(t.ID)
	}
	if held {
		all = append(all, newest)
	}
	return all, err
}

// IsProcessed reports whether a message of an agent has taken effect.
func (o *Orchestrator) IsProcessed(ctx context.Context, agentID, messageID string) (bool, error) {
	return o.store.Inbox(ctx).IsProcessed(agentID, messageID)
}

type (
	// TaskQuery selects the tasks that Tasks returns.
	TaskQuery = store.TaskQuery
	// SessionQuery selects a page of sessions.
	SessionQuery = store.SessionQuery
	// TaskCursor is a position in the list of tasks.
	TaskCursor = store.TaskCursor
)
