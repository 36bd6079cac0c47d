package orchestrator

import (
	"context"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// maxQuestions is how many open questions of a session are listed.
const maxQuestions = 1000

// OpenQuestion is a question that waits for its answer.
type OpenQuestion struct {
	Task models.Task
	Question
	At time.Time
}

// Questions returns what the agents at work in a session wait to be told, the oldest task
// first (PROTOCOL_V5 §7.2). What is asked is known for as long as its event is kept.
func (o *Orchestrator) Questions(ctx context.Context, sessionID string) ([]OpenQuestion, error) {
	running, err := o.store.Tasks(ctx, models.TaskQuery{SessionID: sessionID, State: models.TaskRunning, Limit: maxQuestions})
	if err != nil {
		return nil, err
	}
	var out []OpenQuestion
	for i := len(running) - 1; i >= 0; i-- {
		if running[i].WaitingFor != models.WaitForReply {
			continue
		}
		asked, err := o.OpenQuestion(ctx, running[i])
		if err != nil {
			return nil, err
		}
		out = append(out, asked)
	}
	return out, nil
}

// OpenQuestion returns what a task's agent waits to be told, without words where the event that
// has them is not kept any more. It does not change while it waits.
func (o *Orchestrator) OpenQuestion(ctx context.Context, t models.Task) (OpenQuestion, error) {
	out := OpenQuestion{Task: t, At: t.UpdatedAt}
	event, err := o.store.NewestEvent(ctx, t.ID, models.EventTaskQuestion)
	if errs.Is(err, errs.NotFound) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	var data models.TaskChanged
	err = json.Unmarshal(event.Data, &data)
	out.Question, out.At = Question{Text: data.Question, Options: data.Options}, event.At
	return out, err
}

// LastReply returns what a task's agent was told last when it had asked, or errs.NotFound
// where it was told nothing, or the event that has it is not kept any more.
func (o *Orchestrator) LastReply(ctx context.Context, t models.Task) (string, error) {
	event, err := o.store.NewestEvent(ctx, t.ID, models.EventTaskAnswered)
	if err != nil {
		return "", err
	}
	var data models.TaskChanged
	err = json.Unmarshal(event.Data, &data)
	return data.Answer, err
}

// TaskAwaitingReply returns the task that waits for an answer: the one named or, where that does not,
// the first of its parts, and of theirs, that does. ok is false where none of them does.
func (o *Orchestrator) TaskAwaitingReply(ctx context.Context, t models.Task) (asking models.Task, ok bool, err error) {
	if t.WaitingFor == models.WaitForReply || t.State.Ended() {
		return t, t.WaitingFor == models.WaitForReply, nil
	}
	parts, err := o.store.Children(ctx, t.ID)
	for _, part := range parts {
		if err != nil {
			break
		}
		if asking, ok, err = o.TaskAwaitingReply(ctx, part); ok {
			return asking, true, err
		}
	}
	return t, false, err
}

// WaitForChangeOrQuestion is Changed for whoever also answers what a part of the task asks.
func (o *Orchestrator) WaitForChangeOrQuestion(ctx context.Context, who string, t models.Task, patience time.Duration) (models.Task, error) {
	return o.waitFor(ctx, WakeTask, who, t.ID, patience, func(now models.Task) bool {
		if now.Version > t.Version || now.State.Ended() {
			return true
		}
		_, asking, err := o.TaskAwaitingReply(ctx, now)
		return asking && err == nil
	})
}

// wakeParents wakes whoever waits for what a task is a part of.
func (op *operation) wakeParents(t models.Task) error {
	for t.ParentID != nil {
		op.wakeAfterCommit(WakeTask, *t.ParentID)
		source, err := op.tx.Source(*t.ParentID)
		if err != nil {
			return err
		}
		t = source
	}
	return nil
}
