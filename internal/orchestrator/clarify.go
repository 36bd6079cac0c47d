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
	err = o.transact(ctx, func(s *operation) error {
		out, err = s.clarify(agentID, taskID, q)
		return err
	})
	return out, err
}

func (s *operation) clarify(agentID, taskID string, q Question) (models.Task, error) {
	t, err := s.lockTask(taskID)
	if err != nil {
		return t, err
	}
	a, p, err := s.openAttempt(t, agentID, s.lockForEnd)
	if err != nil {
		return t, err
	}
	before := t
	if err := s.markAccepted(&before, &t, &a); err != nil {
		return t, err
	}
	if t.Questions++; t.Questions > p.MaxQuestions {
		r := attemptEnd{state: models.AttemptFailed, failure: FailureQuestions, text: "the agent asked back too often", outcome: models.OutcomeFailed}
		if err := s.failAttempt(&t, r, p); err != nil {
			return t, err
		}
		err = s.saveTask(before, &t)
		return t, err
	}
	t.WaitingFor, t.Deadline = models.WaitForReply, s.tx.Now().Add(p.ReplyTimeout)
	if err := s.wakeParents(t); err != nil {
		return t, err
	}
	err = s.emitTaskEvent(models.EventTaskQuestion, t, func(d *models.TaskChanged) { d.Question, d.Options = q.Text, q.Options })
	if err == nil {
		err = s.notifyQuestion(t)
	}
	if err != nil {
		return t, err
	}
	err = s.saveTask(before, &t)
	return t, err
}

// notifyQuestion asks the agent that a task is done for in the end, where it wants to be told of it.
func (s *operation) notifyQuestion(t models.Task) error {
	root := t
	for root.ParentID != nil {
		source, err := s.tx.Source(*root.ParentID)
		if err != nil {
			return err
		}
		root = source
	}
	if root.OwnerAgent == "" {
		return nil
	}
	in, err := s.tx.TaskInput(root.ID)
	if err != nil {
		return err
	}
	if o, err := overrideOf(in); err != nil || !o.Notify {
		return err
	}
	s.wakeAfterCommit(WakeInbox, root.OwnerAgent)
	_, err = s.tx.EnqueueMessage(models.InboxMessage{AgentID: root.OwnerAgent, Kind: models.MessageQuestion, Priority: t.Priority, TaskID: t.ID, Attempt: t.Attempt})
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
	err = o.transact(ctx, func(s *operation) error {
		t, err := s.lockTask(taskID)
		if err != nil {
			return err
		}
		if t.WaitingFor != models.WaitForReply {
			return errs.New(errs.TaskState, "the task %q waits for no answer", taskID).With("state", t.State)
		}
		before := t
		_, p, err := s.loadPolicy(t)
		if err == nil {
			err = s.deliverReply(&t, answer, p)
		}
		if err != nil {
			return err
		}
		out = t
		return s.saveTask(before, &out)
	})
	return out, err
}

// deliverReply tells a task's agent what it has asked. The task is not saved yet.
func (s *operation) deliverReply(t *models.Task, answer string, p Policy) error {
	data, err := json.Marshal(map[string]string{"answer": answer})
	if err != nil {
		return err
	}
	t.WaitingFor, t.Deadline = models.NotWaiting, s.tx.Now().Add(p.Timeout)
	_, err = s.tx.EnqueueMessage(models.InboxMessage{
		AgentID: t.AgentID, Kind: models.MessageReply, Priority: t.Priority, TaskID: t.ID, Attempt: t.Attempt, Data: data,
	})
	if err != nil {
		return err
	}
	s.wakeAfterCommit(WakeInbox, t.AgentID)
	return s.emitTaskEvent(models.EventTaskReplied, *t, func(d *models.TaskChanged) { d.Reply = answer })
}
