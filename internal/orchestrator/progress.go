package orchestrator

import (
	"context"

	"comet/models"
)

// Progress is what an agent says while it works.
type Progress struct {
	// Percent is 0 to 100, nil where it was not said.
	Percent  *int
	Step     int
	StepName string
	// Log is what it has put out since it spoke last.
	Log []byte
	// Chunk is a piece of what is too long for one message.
	Chunk *Chunk
	// MessageID makes the message count once for its agent; "" for no such promise.
	MessageID string
}

// Chunk is a piece of a step's output. The pieces of one step may come in any order and
// more than once; those of the newest step are the result, unless another one follows.
type Chunk struct {
	Step  int
	Start int64 // byte offset
	// Span is how many bytes it stands for, 0 for as many as Data has. A sender that
	// counts characters has fewer; the pieces are put together in their order then.
	Span int64
	// Total is how long all of it is, 0 where it is not known.
	Total int64
	Data  []byte
}

// Accept notes that an agent has its attempt and works on it; any progress says so too.
// It returns errs.NotFound for a task the agent never had and errs.TaskState for an
// attempt that has ended.
func (o *Orchestrator) Accept(ctx context.Context, agentID, taskID string) (models.Task, error) {
	return o.Progress(ctx, agentID, taskID, Progress{})
}

// Progress notes how far an agent is, and that it is alive: the attempt's deadline
// moves. It returns what Accept returns, and errs.LimitReached for output that is too
// long, of which nothing is kept.
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
	if err != nil {
		return t, err
	}
	before := t
	if err := op.markAccepted(&before, &t, &a); err != nil {
		return t, err
	}
	if err := op.storeOutput(&t, &a, p); err != nil {
		return t, err
	}
	told := p.Percent != nil || p.Step != 0 || p.StepName != ""
	if p.Percent != nil {
		t.Progress = *p.Percent
	}
	if p.Step != 0 || p.StepName != "" {
		t.Step, t.StepName = p.Step, p.StepName
	}
	if t.WaitingFor == models.NotWaiting {
		t.Deadline = op.tx.Now().Add(policy.Timeout)
	}
	if told {
		err = op.emitTaskEvent(models.EventTaskProgress, t, func(d *models.TaskChanged) { d.Step, d.StepName = t.Step, t.StepName })
	}
	if err != nil {
		return t, err
	}
	err = op.saveTask(before, &t)
	return t, err
}

// extendDeadline notes that an agent is at work which says again what it has said: its deadline
// moves, and nothing else.
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
	t.Deadline = op.tx.Now().Add(p.Timeout)
	return op.saveTask(before, t)
}

// markAccepted makes an assigned attempt a running one. It is a step of its own, which before
// has then behind it.
func (op *operation) markAccepted(before, t *models.Task, a *models.Attempt) error {
	if a.State != models.AttemptAssigned {
		return nil
	}
	now := op.tx.Now()
	a.State, a.AcceptedAt = models.AttemptRunning, &now
	if err := op.tx.SaveAttempt(*a); err != nil {
		return err
	}
	if err := op.tx.CancelMessages(t.ID, a.Attempt); err != nil { // it has it
		return err
	}
	if t.State = models.TaskRunning; t.StartedAt == nil {
		t.StartedAt = &now
	}
	if err := op.emitTaskEvent(models.EventTaskStarted, *t, nil); err != nil {
		return err
	}
	if err := op.tx.SaveTask(*before, t); err != nil {
		return err
	}
	*before = *t
	return nil
}

// lockForMessage locks the task of which an agent speaks. fresh is whether the effect of its message
// is still to come; messages without an id always have theirs.
func (op *operation) lockForMessage(agentID, taskID, messageID string) (t models.Task, fresh bool, err error) {
	t, err = op.lockTask(taskID)
	if err != nil || messageID == "" {
		return t, err == nil, err
	}
	fresh, err = op.tx.MarkProcessed(agentID, messageID)
	return t, fresh, err
}

// openAttempt returns the attempt that an agent has at a task, and the policy that terms or
// lastTerms finds. It returns errs.NotFound for a task that the agent never had and
// errs.TaskState where the task, or the agent's attempt at it, is over.
func (op *operation) openAttempt(t models.Task, agentID string, terms func(models.Task) (models.TaskInput, Policy, error)) (models.Attempt, Policy, error) {
	a, err := op.latestAttempt(t, agentID)
	if err == nil && (t.State.Ended() || a.State.Ended() || a.Attempt != t.Attempt) {
		err = errTaskEnded(t)
	}
	if err != nil {
		return a, Policy{}, err
	}
	_, p, err := terms(t)
	return a, p, err
}
