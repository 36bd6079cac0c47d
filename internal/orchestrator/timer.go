package orchestrator

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"comet/internal/errs"
	"comet/internal/jobs"
	"comet/internal/orchestrator/selection"
	"comet/models"
)

// timer does what is due about a task: it gives up an attempt that was silent for too
// long, a wait in the line or for an answer, or begins the next attempt. One that comes
// too early, because the deadline has moved, is set again.
func (o *Orchestrator) timer(ctx context.Context, job *jobs.Job) error {
	return o.do(ctx, func(s *step) error {
		t, err := s.tx.Task(job.Key) // before its timer, as in every verb
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		if e := job.Finish(s.tx); e != nil || err != nil || t.State.Ended() {
			return e
		}
		if s.tx.Now().Before(t.Deadline) {
			return s.arm(t)
		}
		if s.slept(t) {
			return s.extend(t)
		}
		return s.due(ctx, t)
	})
}

// The patience with agents after a time in which nobody could hear them: longer than
// they wait before they try to connect again.
const (
	overslept = 5 * time.Second
	patience  = 30 * time.Second
)

// slept reports whether an attempt's deadline passed while no server was there to hear
// its agent: it comes late, and this one has begun only a moment ago. Whoever worked on
// meanwhile may bring the result yet.
func (s *step) slept(t models.Task) bool {
	now := s.tx.Now()
	return t.WaitingFor == models.NotWaiting && now.Sub(t.Deadline) > overslept && now.Sub(time.UnixMicro(s.started.Load())) < patience
}

// extend gives an attempt more time.
func (s *step) extend(t models.Task) error {
	before := t
	t.Deadline = s.tx.Now().Add(patience)
	if err := s.save(before, &t); err != nil {
		return err
	}
	return s.arm(t)
}

// due is what happens at the deadline.
func (s *step) due(ctx context.Context, t models.Task) error {
	before := t
	in, p, err := s.lastTerms(t)
	if err != nil {
		return err
	}
	switch t.WaitingFor {
	case models.WaitForWorker:
		err = s.fail(&t, FailureSaturated, "no agent had a place free in time")
	case models.WaitForRetry:
		err = s.retry(&t, in, p)
	case models.WaitForReply:
		err = s.unanswered(ctx, &t, p)
	case models.NotWaiting:
		if t.AgentID == "" {
			return s.failParent(before, t, FailureWork, "its subtasks have not ended in time")
		}
		err = s.giveUp(&t, report{state: models.AttemptTimedOut, failure: FailureTimeout, text: "the agent was silent for too long", outcome: models.OutcomeTimeout}, p)
	}
	if err != nil {
		return err
	}
	if err := s.save(before, &t); err != nil || t.State.Ended() || s.armed {
		return err
	}
	return s.arm(t) // the old timer is used up
}

// unanswered takes the first option of a question that nobody has answered, where the
// policy wants that and there is one (PROTOCOL_V5 §7.2), and else ends the attempt.
func (s *step) unanswered(ctx context.Context, t *models.Task, p Policy) error {
	if p.FirstOption {
		asked, err := s.OpenQuestion(ctx, *t) // it was committed long ago
		if err != nil {
			return err
		}
		if len(asked.Options) > 0 {
			return s.answer(t, asked.Options[0], p)
		}
	}
	r := report{state: models.AttemptTimedOut, failure: FailureUnanswered, text: "nobody answered the agent's question in time", outcome: models.OutcomeTimeout}
	return s.giveUp(t, r, p)
}

// retry makes the next attempt.
func (s *step) retry(t *models.Task, in models.TaskInput, p Policy) error {
	exclude, err := s.excluded(*t, p)
	if err != nil {
		return err
	}
	if taken, err := s.fallBack(t, in, p, exclude); err != nil || taken {
		return err
	}
	failure, err := s.place(t, in, p, exclude)
	if err != nil || failure == "" {
		return err
	}
	return s.fail(t, failure, why(failure))
}

// fallBack gives a task that failed elsewhere to the agent that its asker has named for
// that, and reports whether that one takes it.
func (s *step) fallBack(t *models.Task, in models.TaskInput, p Policy, exclude []string) (bool, error) {
	o, err := override(in)
	if err != nil || o.Fallback == "" || len(exclude) == 0 || slices.Contains(exclude, o.Fallback) {
		return false, err
	}
	in.RequestedAgentID = o.Fallback
	verdict, err := s.assign(t, in, p, nil)
	return verdict == selection.Chosen, err
}

// giveUp ends the newest attempt and goes on.
func (s *step) giveUp(t *models.Task, r report, p Policy) error {
	a, err := s.tx.Attempt(t.ID, t.Attempt)
	if err != nil {
		return err
	}
	agent := a.AgentID
	t.Detail = nil // of an earlier attempt: its agent has said nothing of this one's end
	if err := s.endAttempt(t, &a, r, p); err != nil {
		return err
	}
	if err := s.takeBack(*t, a, agent, r.failure); err != nil {
		return err
	}
	return s.goOn(t, r, p)
}

// takeBack tells an agent that may still work on an attempt that it is given up.
func (s *step) takeBack(t models.Task, a models.Attempt, agent string, why Failure) error {
	if a.AcceptedAt == nil { // it never said that it has it
		return nil
	}
	data, err := json.Marshal(map[string]string{"reason": string(why)})
	if err != nil {
		return err
	}
	s.wake(WakeInbox, agent)
	_, err = s.tx.EnqueueMessage(models.InboxMessage{
		AgentID: agent, Kind: models.MessageCancel, Priority: models.MaxPriority, TaskID: t.ID, Attempt: a.Attempt, Data: data,
	})
	return err
}
