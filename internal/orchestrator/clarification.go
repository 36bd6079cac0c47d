package orchestrator

import (
	"context"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/models"
)

// Question is what an agent asks back (PROTOCOL_V5 §7).
type Question struct {
	Text    string
	Options []string
}

// Clarify has an agent ask back: the task waits for an answer instead of for progress.
// One question more than the policy allows ends the attempt (E18).
func (o *Orchestrator) Clarify(ctx context.Context, agentID, taskID string, q Question) (out models.Task, err error) {
	err = o.transact(ctx, func(op *operation) error {
		out, err = op.clarify(agentID, taskID, q)
		return err
	})
	return out, err
}

func (op *operation) clarify(agentID, taskID string, q Question) (models.Task, error) {
	t, err := op.lockTask(taskID)
	if err != nil {
		return t, err
	}
	a, p, err := op.openAttempt(t, agentID, op.lockForEnd)
	if err != nil {
		return t, err
	}
	before := t
	if err := op.markAccepted(&before, &t, &a); err != nil {
		return t, err
	}
	if t.Questions++; t.Questions > p.MaxQuestions {
		r := attemptEnd{state: models.AttemptFailed, failure: FailureQuestions, text: "the agent asked back too often", outcome: models.OutcomeFailed}
		if err := op.failAttempt(&t, r, p); err != nil {
			return t, err
		}
		err = op.saveTask(before, &t)
		return t, err
	}
	t.WaitingFor, t.Deadline = models.WaitForReply, op.tx.Now().Add(p.ReplyTimeout)
	if err := op.wakeParents(t); err != nil {
		return t, err
	}
	err = op.emitTaskEvent(models.EventTaskQuestion, t, func(d *models.TaskChanged) { d.Question, d.Options = q.Text, q.Options })
	if err == nil {
		err = op.notifyQuestion(t)
	}
	if err != nil {
		return t, err
	}
	err = op.saveTask(before, &t)
	return t, err
}

// notifyQuestion asks the agent that a task is done for in the end, where it wants to be told of it.
func (op *operation) notifyQuestion(t models.Task) error {
	root := t
	for root.ParentID != nil {
		source, err := op.tx.Source(*root.ParentID)
		if err != nil {
			return err
		}
		root = source
	}
	if root.OwnerAgent == "" {
		return nil
	}
	in, err := op.tx.TaskInput(root.ID)
	if err != nil {
		return err
	}
	if o, err := overrideOf(in); err != nil || !o.Notify {
		return err
	}
	op.wakeAfterCommit(WakeInbox, root.OwnerAgent)
	_, err = op.tx.EnqueueMessage(models.InboxMessage{AgentID: root.OwnerAgent, Kind: models.MessageQuestion, Priority: t.Priority, TaskID: t.ID, Attempt: t.Attempt})
	return err
}

// Reply answers what a task's agent has asked or, where that has asked nothing, the agent
// of one of its parts, and returns the task that was answered. It is errs.TaskState for one
// that waits for no answer.
func (o *Orchestrator) Reply(ctx context.Context, taskID, answer string) (out models.Task, err error) {
	named, err := o.Task(ctx, taskID)
	if err != nil {
		return out, err
	}
	asking, _, err := o.TaskAwaitingReply(ctx, named)
	if err != nil {
		return out, err
	}
	taskID = asking.ID
	err = o.transact(ctx, func(op *operation) error {
		t, err := op.lockTask(taskID)
		if err != nil {
			return err
		}
		if t.WaitingFor != models.WaitForReply {
			return errs.New(errs.TaskState, "the task %q waits for no answer", taskID).With("state", t.State)
		}
		before := t
		_, p, err := op.loadPolicy(t)
		if err == nil {
			err = op.deliverReply(&t, answer, p)
		}
		if err != nil {
			return err
		}
		out = t
		return op.saveTask(before, &out)
	})
	return out, err
}

// deliverReply tells a task's agent what it has asked. The task is not saved yet.
func (op *operation) deliverReply(t *models.Task, answer string, p Policy) error {
	data, err := json.Marshal(map[string]string{"answer": answer})
	if err != nil {
		return err
	}
	t.WaitingFor, t.Deadline = models.NotWaiting, op.tx.Now().Add(p.Timeout)
	_, err = op.tx.EnqueueMessage(models.InboxMessage{
		AgentID: t.AgentID, Kind: models.MessageReply, Priority: t.Priority, TaskID: t.ID, Attempt: t.Attempt, Data: data,
	})
	if err != nil {
		return err
	}
	op.wakeAfterCommit(WakeInbox, t.AgentID)
	return op.emitTaskEvent(models.EventTaskAnswered, *t, func(d *models.TaskChanged) { d.Answer = answer })
}

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
