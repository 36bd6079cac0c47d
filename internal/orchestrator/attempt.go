package orchestrator

import (
	"encoding/json"
	"slices"

	"comet/internal/errs"
	"comet/models"
)

// attemptEnd is how an attempt ended, as its agent or a timer says.
type attemptEnd struct {
	state   models.AttemptState
	failure Failure // "" for a success, or a cancellation
	text    string  // of the failure
	tokens  int64   // used
	needed  int64   // of the budget that did not cover it, 0 for not said
	labels  models.FactLabels
	outcome models.Outcome
}

// endAttempt ends an attempt: its worker gets its place back, its reservation is
// settled, its outcome counts in the agent's statistics, and what it was still to be
// told is taken back. The task's lock is held.
func (s *operation) endAttempt(t *models.Task, a *models.Attempt, r attemptEnd, p Policy) error {
	now := s.tx.Now()
	a.State, a.Tokens, a.ErrorCode, a.Error, a.EndedAt = r.state, r.tokens, string(r.failure), r.text, &now
	if err := s.tx.SaveAttempt(*a); err != nil {
		return err
	}
	s.countAttempt(*a)
	if err := s.traceAttempt(*t, *a); err != nil {
		return err
	}
	if err := s.tx.CancelMessages(t.ID, a.Attempt); err != nil {
		return err
	}
	if a.AgentID == "" {
		return nil
	}
	if err := s.releaseSlot(a.AgentID, r, p); err != nil {
		return err
	}
	t.Tokens += r.tokens
	return s.chargeAttempt(*t, *a, r)
}

// chargeAttempt settles what the attempt has used, and records its outcome.
func (s *operation) chargeAttempt(t models.Task, a models.Attempt, r attemptEnd) error {
	session := t.SessionID
	if session == "" {
		session = t.ID
	}
	duration := max(a.EndedAt.Sub(a.AssignedAt).Milliseconds(), 0) // clocks of replicas differ
	outcome := models.FactOutcome{Outcome: r.outcome, DurationMS: &duration, SessionID: session}
	r.labels.TaskID = t.ID
	if a.ReservationID != "" {
		err := s.ledger.SettleIn(s.tx, a.AgentID, a.ReservationID, models.Settlement{Tokens: &r.tokens, FactLabels: r.labels, FactOutcome: outcome})
		if !errs.Is(err, errs.ReservationEnded) { // its agent may have released it
			return err
		}
	}
	if r.tokens > 0 {
		return s.ledger.ChargeIn(s.tx, a.AgentID, models.FactDraft{Tokens: &r.tokens, FactLabels: r.labels, FactOutcome: outcome})
	}
	return s.tx.AddOutcomes([]models.OutcomeRow{{AgentID: a.AgentID, SessionID: session, Status: r.outcome, DurationMS: &duration, At: s.tx.Now()}})
}

// retryOrFail does what follows a failed attempt: the next one, here or with another agent, or
// the end of the task.
func (s *operation) retryOrFail(t *models.Task, r attemptEnd, p Policy) error {
	if again, err := s.handleOverrun(t, r, p); err != nil || again {
		return err
	}
	if p.allowsRetry(r.failure, *t) && (t.Budget == nil || t.Tokens < *t.Budget) {
		return s.scheduleRetry(t, p, r.failure)
	}
	return s.failTask(t, r.failure, r.text)
}

// failTask ends a task; it is not saved yet.
func (s *operation) failTask(t *models.Task, f Failure, text string) error {
	t.State, t.WaitingFor, t.ErrorCode, t.Error, t.EndedAt = models.TaskFailed, models.NotWaiting, string(f), text, new(s.tx.Now())
	return s.emitTaskEvent(models.EventTaskFailed, *t, func(d *models.TaskChanged) { d.Failure, d.Error = string(f), text })
}

// agentsToAvoid returns the agents that shall not have the next attempt.
func (s *operation) agentsToAvoid(t models.Task, p Policy) ([]string, error) {
	if t.Attempt == 0 {
		return nil, nil
	}
	all, err := s.tx.Attempts(t.ID)
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

// latestAttempt returns the attempt that an agent speaks of when it names a task: the newest
// of its own. An agent that has none gets errs.NotFound, as if there were no such task.
func (s *operation) latestAttempt(t models.Task, agentID string) (models.Attempt, error) {
	if t.AgentID == agentID && t.Attempt > 0 {
		a, err := s.tx.Attempt(t.ID, t.Attempt)
		if err != nil || a.AgentID == agentID { // another's, where an older one succeeded late
			return a, err
		}
	}
	all, err := s.tx.Attempts(t.ID)
	if err != nil {
		return models.Attempt{}, err
	}
	for _, a := range slices.Backward(all) {
		if a.AgentID == agentID {
			return a, nil
		}
	}
	return models.Attempt{}, errs.New(errs.NotFound, "there is no task %q", t.ID)
}

// errTaskEnded is the error for a step of a task, or of an attempt at it, that has ended.
func errTaskEnded(t models.Task) error {
	return errs.New(errs.TaskState, "the task %q is %s", t.ID, t.State).With("state", t.State)
}

// cancelAttempt ends an attempt that is not wanted any more, and tells its agent.
func (s *operation) cancelAttempt(t *models.Task, a *models.Attempt, why string, p Policy) error {
	r := attemptEnd{state: models.AttemptCancelled, text: why, outcome: models.OutcomeCancelled}
	if err := s.endAttempt(t, a, r, p); err != nil || a.AgentID == "" {
		return err
	}
	data, err := json.Marshal(map[string]string{"reason": why})
	if err != nil {
		return err
	}
	s.wakeAfterCommit(WakeInbox, a.AgentID)
	_, err = s.tx.EnqueueMessage(models.InboxMessage{
		AgentID: a.AgentID, Kind: models.MessageCancel, Priority: models.MaxPriority, TaskID: t.ID, Attempt: a.Attempt, Data: data,
	})
	return err
}
