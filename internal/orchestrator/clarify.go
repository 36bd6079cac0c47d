package orchestrator

import (
	"context"
	"encoding/json"

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
