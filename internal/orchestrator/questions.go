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

// Asked is a question that waits for its answer.
type Asked struct {
	Task models.Task
	Question
	At time.Time
}

// Questions returns what the agents at work in a session wait to be told, the oldest task
// first (PROTOCOL_V5 §7.2). What is asked is known for as long as its event is kept.
func (o *Orchestrator) Questions(ctx context.Context, sessionID string) ([]Asked, error) {
	running, err := o.store.Tasks(ctx, models.TaskQuery{SessionID: sessionID, State: models.TaskRunning, Limit: maxQuestions})
	if err != nil {
		return nil, err
	}
	var out []Asked
	for i := len(running) - 1; i >= 0; i-- {
		if running[i].Waits != models.WaitAnswer {
			continue
		}
		asked, err := o.Asked(ctx, running[i])
		if err != nil {
			return nil, err
		}
		out = append(out, asked)
	}
	return out, nil
}

// Asked returns what a task's agent waits to be told, without words where the event that
// has them is not kept any more. It does not change while it waits.
func (o *Orchestrator) Asked(ctx context.Context, t models.Task) (Asked, error) {
	out := Asked{Task: t, At: t.UpdatedAt}
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
