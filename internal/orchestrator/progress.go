package orchestrator

import (
	"cmp"
	"context"
	"encoding/json"
	"strconv"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/partials"
)

// Progress is the report of an agent that works on a task.
type Progress struct {
	// Percent is 0 to 100, nil for unknown.
	Percent  *int
	Step     int
	StepName string
	// Log is the log output since the last report.
	Log []byte
	// Chunk is a piece of output that is too long for one message.
	Chunk *Chunk
	// Partial is a partial result, JSON, nil for none. Partial results are kept in their order; they are not
	// the result of the task.
	Partial json.RawMessage
	// Attempt is the number of the attempt, 0 for the newest one of the agent.
	Attempt int
	// MessageID makes a repeated message of the agent take effect once; "" does not.
	MessageID string
}

// Chunk is a piece of the output of a step. The chunks of one step may come in any order and more than once. Those of
// the newest step are the result, unless another result follows.
type Chunk struct {
	Step  int
	Start int64 // offset in bytes
	// Span is the length that the chunk has in the offsets of the sender, 0 for the length of
	// Data. It differs for a sender that counts characters; the chunks are then joined in order.
	Span int64
	// Total is the length of the complete output, 0 for unknown.
	Total int64
	Data  []byte
}

// Accept records that an agent works on its attempt; any progress report does so as well. It returns errs.NotFound for
// a task that the agent never had and errs.TaskState for an attempt that has ended.
func (o *Orchestrator) Accept(ctx context.Context, agentID, taskID string) (models.Task, error) {
	return o.Progress(ctx, agentID, taskID, Progress{})
}

// Progress records the progress of an agent and extends the deadline of its attempt. It returns the errors of Accept,
// and errs.LimitReached for output that is too long, which is not stored.
func (o *Orchestrator) Progress(ctx context.Context, agentID, taskID string, p Progress) (out models.Task, err error) {
	err = o.transact(ctx, func(op *operation) error {
		out, err = op.progress(agentID, taskID, p)
		return err
	})
	return out, err
}

func (op *operation) progress(agentID, taskID string, p Progress) (models.Task, error) {
	t, fresh, err := op.lockForMessage(agentID, taskID, p.MessageID)
	if err != nil {
		return t, err
	}
	if !fresh {
		err = op.extendDeadline(&t, agentID)
		return t, err
	}
	a, policy, err := op.openAttempt(t, agentID, op.loadPolicy)
	if err == nil && p.Attempt != 0 && p.Attempt != a.Attempt {
		err = errs.New(errs.TaskState, "attempt %d of the task %q is not open", p.Attempt, t.ID)
	}
	if err != nil {
		return t, err
	}
	before := t
	err = cmp.Or(op.markAccepted(&t, &a), op.appendLog(&t, a.Attempt, p.Log))
	if err == nil && p.Chunk != nil {
		err = op.storeChunk(&t, &a, *p.Chunk)
	}
	if err == nil && p.Partial != nil {
		err = op.storePartial(t, p.Partial)
	}
	if err != nil {
		return t, err
	}
	reported := p.Percent != nil || p.Step != 0 || p.StepName != ""
	if p.Percent != nil {
		t.Progress = *p.Percent
	}
	if p.Step != 0 || p.StepName != "" {
		t.Step, t.StepName = p.Step, p.StepName
	}
	if t.WaitingFor == models.NotWaiting {
		t.Deadline = policy.deadline(t, op.tx.Now(), policy.Timeout)
	}
	if reported && policy.Notify && t.OwnerAgent != "" {
		op.wakeAfterCommit(WakeProgress, t.OwnerAgent+"/"+t.ID)
	}
	if reported {
		op.emitTaskEvent(events.TaskProgress, t, func(d *events.TaskData) { d.Step, d.StepName = t.Step, t.StepName })
	}
	err = op.saveTask(before, &t)
	return t, err
}

// storePartial stores a partial result and sends it to the agent that submitted the task, if it asked for them.
func (op *operation) storePartial(t models.Task, data json.RawMessage) error {
	seq, err := partials.Add(op.tx, t.ID, t.Attempt, data)
	if err != nil {
		return err
	}
	op.emitTaskEvent(partials.EventAdded, t, func(d *events.TaskData) { d.Partial = seq })
	if t.OwnerAgent == "" {
		return nil
	}
	in, err := op.tx.Tasks().Input(t)
	if err != nil {
		return err
	}
	if o, err := overrideOf(in); err != nil || !o.Partials {
		return err
	}
	return op.send(t.OwnerAgent, partials.MessageKind, t, map[string]string{"seq": strconv.FormatInt(seq, 10)})
}

// Partials returns up to limit partial results of a task with a higher number than after, in order.
func (o *Orchestrator) Partials(ctx context.Context, taskID string, after int64, limit int) ([]partials.Partial, error) {
	return partials.After(o.store.Reads(ctx), taskID, after, limit)
}

// extendDeadline extends the deadline after a repeated message and changes nothing else.
func (op *operation) extendDeadline(t *models.Task, agentID string) error {
	a, err := op.latestAttempt(*t, agentID)
	if err != nil || t.State.Ended() || a.State != models.AttemptRunning || a.Attempt != t.Attempt || t.WaitingFor != models.NotWaiting {
		return err
	}
	_, p, err := op.loadPolicy(*t)
	if err != nil {
		return err
	}
	before := *t
	t.Deadline = p.deadline(*t, op.tx.Now(), p.Timeout)
	return op.saveTask(before, t)
}

// markAccepted sets an assigned attempt to running and emits task.started. It does not save the task.
func (op *operation) markAccepted(t *models.Task, a *models.Attempt) error {
	unread := t.MessageID != ""
	if !op.setAccepted(t, a) {
		return nil
	}
	op.emitTaskEvent(events.TaskStarted, *t, nil)
	if !unread {
		return nil
	}
	return op.reportReceipt(store.Received{TaskID: t.ID, Class: t.Class, OwnerAgent: t.OwnerAgent})
}

// setAccepted sets an assigned attempt to running, and reports whether it was assigned.
func (op *operation) setAccepted(t *models.Task, a *models.Attempt) bool {
	if a.State != models.AttemptAssigned {
		return false
	}
	now := op.tx.Now()
	a.State, a.AcceptedAt = models.AttemptRunning, &now
	t.SetNewestAttempt(*a)
	t.MessageID = ""
	if t.State = models.TaskRunning; t.StartedAt == nil {
		t.StartedAt = &now
	}
	return true
}

// lockForMessage locks the task that a message is about. fresh reports whether the message has not been processed yet;
// messages without an id are always fresh.
func (op *operation) lockForMessage(agentID, taskID, messageID string) (t models.Task, fresh bool, err error) {
	t, err = op.lockTask(taskID)
	if err != nil || messageID == "" {
		return t, err == nil, err
	}
	fresh, err = op.tx.Inbox().MarkProcessed(agentID, messageID)
	return t, fresh, err
}

// openAttempt returns the open attempt of an agent at a task, and the policy that load returns. It returns
// errs.NotFound for a task that the agent never had and errs.TaskState if the task, or the agent's attempt, has ended.
func (op *operation) openAttempt(t models.Task, agentID string, load func(models.Task) (models.TaskInput, Policy, error)) (models.Attempt, Policy, error) {
	a, err := op.latestAttempt(t, agentID)
	if err == nil && (t.State.Ended() || a.State.Ended() || a.Attempt != t.Attempt) {
		err = errTaskEnded(t)
	}
	if err != nil {
		return a, Policy{}, err
	}
	_, p, err := load(t)
	return a, p, err
}
