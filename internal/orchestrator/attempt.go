package orchestrator

import (
	"cmp"
	"slices"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// attemptEnd describes how an attempt ended, as reported by its agent or a timer.
type attemptEnd struct {
	state   models.AttemptState
	failure Failure // "" for a success or a cancellation
	text    string
	tokens  int64
	needed  int64 // tokens needed if the budget did not cover it, 0 if unknown
	labels  models.FactLabels
	outcome usage.Outcome
}

// endAttempt ends the newest attempt: it releases the worker's slot, settles the reservation, records the outcome for
// the statistics, and cancels pending messages. The task is locked.
func (op *operation) endAttempt(t *models.Task, a *models.Attempt, r attemptEnd, p Policy) error {
	now := op.tx.Now()
	a.State, a.Tokens, a.ErrorCode, a.Error, a.EndedAt = r.state, r.tokens, string(r.failure), r.text, &now
	t.SetNewestAttempt(*a)
	t.MessageID = ""
	op.countAttempt(*a)
	if err := op.traceAttempt(*t, *a); err != nil {
		return err
	}
	if t.Questions > 0 { // a reply may be pending
		if err := op.tx.Inbox().Cancel(t.ID, a.Attempt); err != nil {
			return err
		}
	}
	if a.AgentID == "" {
		return nil
	}
	op.releaseSlot(slotChange{agentID: a.AgentID, failure: r.failure, cancelled: r.state == models.AttemptCancelled || r.failure == FailureLost, policy: p})
	t.Tokens += r.tokens
	return op.chargeAttempt(*t, *a, r)
}

// chargeAttempt charges the tokens of the attempt and records its outcome.
func (op *operation) chargeAttempt(t models.Task, a models.Attempt, r attemptEnd) error {
	session := t.SessionID
	session = cmp.Or(session, t.ID)
	duration := max(a.EndedAt.Sub(a.AssignedAt).Milliseconds(), 0) // clocks of replicas differ
	outcome := usage.FactOutcome{Outcome: r.outcome, DurationMS: &duration, SessionID: session}
	r.labels.TaskID = t.ID
	if a.ReservationID != "" {
		err := op.ledger.SettleIn(op.tx, a.AgentID, a.ReservationID, usage.Settlement{Tokens: &r.tokens, FactLabels: r.labels, FactOutcome: outcome})
		if !errs.Is(err, errs.ReservationEnded) { // the agent may have released it
			return err
		}
	}
	if r.tokens > 0 {
		return op.ledger.ChargeIn(op.tx, a.AgentID, usage.FactDraft{Tokens: &r.tokens, FactLabels: r.labels, FactOutcome: outcome})
	}
	return op.tx.Agents().AddOutcomes([]store.OutcomeRow{{AgentID: a.AgentID, SessionID: session, Status: string(r.outcome), DurationMS: &duration, At: op.tx.Now()}})
}

// retryOrFail stores a failed attempt and schedules another one, or fails the task.
func (op *operation) retryOrFail(t *models.Task, a models.Attempt, r attemptEnd, p Policy) error {
	again, err := op.handleOverrun(t, r, p)
	if err != nil {
		return err
	}
	if !again && p.allowsRetry(r.failure, *t) && (t.Budget == nil || t.Tokens < *t.Budget) {
		op.scheduleRetry(t, p, r.failure)
		again = true
	}
	if again {
		return op.storeAttempt(t, a)
	}
	op.failTask(t, r.failure, r.text)
	return nil
}

// storeAttempt moves an ended attempt from the row of its task to a separate row.
func (op *operation) storeAttempt(t *models.Task, a models.Attempt) error {
	t.SetNewestAttempt(models.Attempt{})
	return op.tx.Tasks().InsertAttempt(a)
}

// heldAttempt returns the open attempt of a task, or errs.Internal if there is none.
func (op *operation) heldAttempt(t models.Task) (models.Attempt, error) {
	a, ok := t.NewestAttempt()
	if !ok {
		return a, errs.New(errs.Internal, "the task %q has no open attempt", t.ID)
	}
	return a, nil
}

// failTask ends a task; it is not saved yet.
func (op *operation) failTask(t *models.Task, f Failure, text string) {
	t.State, t.WaitingFor, t.ErrorCode, t.Error, t.EndedAt = models.TaskFailed, models.NotWaiting, string(f), text, new(op.tx.Now())
	op.emitTaskEvent(events.TaskFailed, *t, func(d *events.TaskData) { d.Failure, d.Error = string(f), text })
}

// agentsToAvoid returns the agents that should not get the next attempt.
func (op *operation) agentsToAvoid(t models.Task, p Policy) ([]string, error) {
	if t.Attempt == 0 {
		return nil, nil
	}
	all, err := op.tx.Tasks().EarlierAttempts(t.ID)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range all {
		if a.AgentID != "" && slices.Contains(p.ReassignOn, Failure(a.ErrorCode)) {
			out = append(out, a.AgentID)
		}
	}
	return out, nil
}

// latestAttempt is attemptOf for the newest attempt of the agent.
func (op *operation) latestAttempt(t models.Task, agentID string) (models.Attempt, error) {
	return op.attemptOf(t, agentID, 0)
}

// attemptOf returns the attempt of an agent at a task with a number, 0 for its newest one. It returns errs.NotFound, as
// for an unknown task, if the agent never had it.
func (op *operation) attemptOf(t models.Task, agentID string, number int) (models.Attempt, error) {
	is := func(a models.Attempt) bool { return a.AgentID == agentID && (number == 0 || a.Attempt == number) }
	newest, held := t.NewestAttempt()
	if held && is(newest) {
		return newest, nil
	}
	var all []models.Attempt
	if t.Attempt > 1 || !held {
		var err error
		if all, err = op.tx.Tasks().EarlierAttempts(t.ID); err != nil {
			return models.Attempt{}, err
		}
	}
	for _, a := range slices.Backward(all) {
		if is(a) {
			return a, nil
		}
	}
	return models.Attempt{}, errs.New(errs.NotFound, "there is no task %q", t.ID)
}

// errTaskEnded is the error for a call about a task, or an attempt, that has ended.
func errTaskEnded(t models.Task) error {
	return errs.New(errs.TaskState, "the task %q is %s", t.ID, t.State).With("state", t.State)
}

// cancelAttempt ends an attempt that is no longer needed and notifies its agent.
func (op *operation) cancelAttempt(t *models.Task, a *models.Attempt, why string, p Policy) error {
	r := attemptEnd{state: models.AttemptCancelled, text: why, outcome: usage.OutcomeCancelled}
	if err := op.endAttempt(t, a, r, p); err != nil || a.AgentID == "" {
		return err
	}
	return op.send(a.AgentID, models.MessageCancel, *t, map[string]string{"reason": why})
}

// succeededAttempt returns the number of the attempt that succeeded, or of the newest one if none did. The succeeded
// attempt is not the newest one if its result was late.
func succeededAttempt(t models.Task, earlier func(taskID string) ([]models.Attempt, error)) (int, error) {
	if t.State != models.TaskDone || t.AttemptState != models.AttemptNone {
		return t.Attempt, nil
	}
	all, err := earlier(t.ID)
	for _, a := range all {
		if a.State == models.AttemptSucceeded {
			return a.Attempt, err
		}
	}
	return t.Attempt, err
}
