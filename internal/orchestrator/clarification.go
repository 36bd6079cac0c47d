package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator/wakeups"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// Question is a question of an agent about its task (PROTOCOL_V5 §7).
type Question struct {
	Text    string
	Options []string
}

// Clarify records a question of an agent: the task waits for a reply. A question above the limit
// of the policy ends the attempt.
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
	if err := op.markAccepted(&t, &a); err != nil {
		return t, err
	}
	if t.Questions++; t.Questions > p.MaxQuestions {
		r := attemptEnd{state: models.AttemptFailed, failure: FailureQuestions, text: "the agent asked too many questions", outcome: usage.OutcomeFailed}
		if err := op.failAttempt(&t, r, p); err != nil {
			return t, err
		}
		err = op.saveTask(before, &t)
		return t, err
	}
	t.WaitingFor = models.WaitForReply
	t.Deadline = p.deadline(t, op.tx.Now(), p.ReplyTimeout)
	err = cmp.Or(op.notifyQuestion(t, q), op.saveTask(before, &t))
	return t, err
}

// notifyQuestion emits the question of a task, and sends it to the agent that submitted the root task, if it asked for notifications.
func (op *operation) notifyQuestion(t models.Task, q Question) error {
	root, err := op.emitQuestion(events.TaskQuestion, t, func(d *events.TaskData) { d.Question, d.Options = q.Text, q.Options })
	if err != nil || root.OwnerAgent == "" {
		return err
	}
	in, err := op.tx.Tasks().Input(root)
	if err != nil {
		return err
	}
	if o, err := overrideOf(in); err != nil || !o.Notify {
		return err
	}
	return op.send(root.OwnerAgent, models.MessageQuestion, t, nil)
}

// emitQuestion emits a question or a reply for a task, which is saved next, and for its parents. It returns the root task.
func (op *operation) emitQuestion(kind models.EventType, t models.Task, set func(*events.TaskData)) (root models.Task, err error) {
	op.emitTaskEvent(kind, t, set)
	for root = t; root.ParentID != nil; {
		op.wakeAfterCommit(WakeTask, *root.ParentID)
		if root, err = op.tx.Tasks().Get(*root.ParentID); err != nil {
			return root, err
		}
		op.emitTaskEvent(events.TaskSubtask, root, func(d *events.TaskData) {
			set(d)
			d.SubtaskID, d.Version = t.ID, root.Version // the parent is not saved
		})
	}
	return root, nil
}

// Reply replies to the question of a task's agent or, if it asked none, of an agent of one of its
// subtasks. It returns the task that was waiting, or errs.TaskState if none was. Each function of with runs
// in the same transaction; its error rolls back the reply.
func (o *Orchestrator) Reply(ctx context.Context, taskID, answer string, with ...func(*store.Tx) error) (out models.Task, err error) {
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
			return errs.New(errs.TaskState, "the task %q does not wait for a reply", taskID).With("state", t.State)
		}
		before := t
		_, p, err := op.loadPolicy(t)
		if err == nil {
			err = op.deliverReply(&t, answer, p)
		}
		for _, commit := range with {
			if err == nil {
				err = commit(op.tx)
			}
		}
		if err != nil {
			return err
		}
		out = t
		return op.saveTask(before, &out)
	})
	return out, err
}

// deliverReply sends a reply to a task's agent. The task is not saved yet.
func (op *operation) deliverReply(t *models.Task, answer string, p Policy) error {
	t.WaitingFor = models.NotWaiting
	t.Deadline = p.deadline(*t, op.tx.Now(), p.Timeout)
	_, err := op.emitQuestion(events.TaskReplied, *t, func(d *events.TaskData) { d.Reply = answer })
	return cmp.Or(err, op.send(t.AgentID, models.MessageReply, *t, map[string]string{"answer": answer}))
}

// maxQuestions limits how many open questions of a session are listed.
const maxQuestions = 1000

// OpenQuestion is a question that waits for its reply.
type OpenQuestion struct {
	Task models.Task
	Question
	At time.Time
}

// Questions returns the open questions in a session, of the oldest task first (PROTOCOL_V5 §7.2).
// Their text is known as long as their events are kept.
func (o *Orchestrator) Questions(ctx context.Context, sessionID string) ([]OpenQuestion, error) {
	running, err := o.store.Tasks(ctx).List(store.TaskQuery{SessionID: sessionID, State: models.TaskRunning, Limit: maxQuestions})
	if err != nil {
		return nil, err
	}
	var out []OpenQuestion
	for i := len(running) - 1; i >= 0; i-- {
		if running[i].WaitingFor != models.WaitForReply {
			continue
		}
		asked, err := o.OpenQuestion(ctx, running[i].Task)
		if err != nil {
			return nil, err
		}
		out = append(out, asked)
	}
	return out, nil
}

// OpenQuestion returns the question that a task waits with. Its text is empty if its event was
// purged. It does not change while the task waits.
func (o *Orchestrator) OpenQuestion(ctx context.Context, t models.Task) (OpenQuestion, error) {
	return openQuestion(t, o.store.Events(ctx))
}

func openQuestion(t models.Task, from store.EventReader) (OpenQuestion, error) {
	out := OpenQuestion{Task: t, At: t.UpdatedAt}
	event, err := from.Newest(t.ID, events.TaskQuestion)
	if errs.Is(err, errs.NotFound) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	var data events.TaskData
	err = json.Unmarshal(event.Data, &data)
	out.Question, out.At = Question{Text: data.Question, Options: data.Options}, event.At
	return out, err
}

// LastReply returns the last reply that a task's agent received, or errs.NotFound if there was
// none or its event was purged.
func (o *Orchestrator) LastReply(ctx context.Context, t models.Task) (string, error) {
	event, err := o.store.Events(ctx).Newest(t.ID, events.TaskReplied)
	if err != nil {
		return "", err
	}
	var data events.TaskData
	err = json.Unmarshal(event.Data, &data)
	return data.Reply, err
}

// TaskAwaitingReply returns the task that waits for a reply: t, or else the first of its
// subtasks, recursively. ok is false if none waits.
func (o *Orchestrator) TaskAwaitingReply(ctx context.Context, t models.Task) (asking models.Task, ok bool, err error) {
	if t.WaitingFor == models.WaitForReply || t.State.Ended() || t.Subtasks == 0 {
		return t, t.WaitingFor == models.WaitForReply, nil
	}
	subtasks, err := o.store.Tasks(ctx).Children(t.ID)
	for _, subtask := range subtasks {
		if err != nil {
			break
		}
		if asking, ok, err = o.TaskAwaitingReply(ctx, subtask); ok {
			return asking, true, err
		}
	}
	return t, false, err
}

// WaitForQuestion is Wait, but also returns when the task or a subtask asks a question. If closes is
// true, the end of the task also closes its session if no other task of the session is open. closed
// reports that it did; it may be false if the session was closed otherwise, such as by another replica.
func (o *Orchestrator) WaitForQuestion(ctx context.Context, tokenID, id string, timeout time.Duration, closes bool) (t models.Task, closed bool, err error) {
	var closing <-chan struct{}
	if closes {
		var stop func()
		closing, stop = o.waiters.Subscribe(wakeups.Closed, id)
		defer stop()
	}
	t, err = o.waitFor(ctx, WakeTask, tokenID, id, timeout, func(t models.Task) bool {
		_, asking, err := o.TaskAwaitingReply(ctx, t)
		return t.State.Ended() || asking && err == nil
	})
	select {
	case <-closing:
		return t, true, err
	default:
		return t, false, err
	}
}
