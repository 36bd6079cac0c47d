package orchestrator

import (
	"context"

	"comet/internal/errs"
	"comet/models"
)

// maxChildren is how many tasks one may be handed off into.
const maxChildren = 100

// HandOff has another agent do a part of what an agent has (PROTOCOL_V5 §5.3): a task
// of its own, one deeper, in the same session, whose budget is carved out of its
// source's. The agent that hands off is told the end; the source goes on meanwhile and
// ends by itself. With the end of the source the part is cancelled.
//
// It returns errs.InvalidRequest for several workers, errs.NotFound for a task that the agent does not have, errs.TaskState for
// one that has ended, errs.LimitReached where depth+1 is not below what the wanted agent has
// said when it came, or else the policy's MaxDepth (§5.4), errs.BudgetExceeded where the source has not so much left, and what Submit
// returns.
func (o *Orchestrator) HandOff(ctx context.Context, by models.Principal, agentID, taskID string, sub Submission) (Submitted, error) {
	if err := sub.complete(o.opts.Classes); err != nil {
		return Submitted{}, err
	}
	if sub.Override.Workers != 0 {
		var v errs.Violations
		v.Add(errs.InvalidRequest, "/workers", "conflict", "a task is handed off to one agent, not to several")
		return Submitted{}, v.Err()
	}
	sub.Override.Notify = true
	if in, err := o.store.TaskInput(ctx, taskID); err == nil && sub.Trace == "" {
		sub.Trace = in.Trace // it goes on in its source's
	}
	source, err := o.Task(ctx, taskID)
	if err != nil {
		return Submitted{}, err
	}
	sub.Session, sub.parent = source.SessionID, &source.ID
	sub.Fingerprint += "\x00" + agentID + "\x00" + source.ID // out of another task it is another request
	ctx, span := o.traced(ctx, &sub)
	o.resolve(ctx, by, &sub)
	var out Submitted
	err = o.again(ctx, func() error {
		return o.do(ctx, func(s *step) (err error) {
			out, err = s.handOff(by, agentID, taskID, sub)
			return err
		})
	})
	finish(span, err)
	return out, err
}

func (s *step) handOff(by models.Principal, agentID, taskID string, sub Submission) (Submitted, error) {
	t, err := s.task(taskID)
	if err != nil {
		return Submitted{}, err
	}
	whoever := by // of its agent: it may say it again at another door, with another token
	whoever.TokenID = "agent:" + agentID
	if out, replayed, err := s.claim(whoever, sub); err != nil || replayed {
		return out, err
	}
	sub.claimed = true
	a, p, err := s.underway(t, agentID, s.sessionTerms)
	if err != nil {
		return Submitted{}, err
	}
	before := t
	if most := s.depthOf(sub.Agent, p); t.Depth+1 >= most {
		return Submitted{}, errs.New(errs.LimitReached, "the task %q is %d hand-offs deep, and there may be %d", t.ID, t.Depth, most-1).
			With("depth", t.Depth).With("max_depth", most)
	}
	n, err := s.tx.CountChildren(t.ID, maxChildren)
	if err != nil {
		return Submitted{}, err
	}
	if n >= maxChildren {
		return Submitted{}, errs.New(errs.LimitReached, "a task may be handed off into %d others", maxChildren).With("limit", maxChildren)
	}
	if err := s.lockCandidates(sub, t, t.Depth+1, 1, agentID); err != nil { // before the source's account
		return Submitted{}, err
	}
	if err := s.carve(&t, &a, sub.Budget); err != nil {
		return Submitted{}, err
	}
	if err := s.accept(&before, &t, &a); err != nil {
		return Submitted{}, err
	}
	if t.WaitingFor == models.NotWaiting { // it shows that it lives
		t.Deadline = s.tx.Now().Add(p.Timeout)
	}
	if err := s.save(before, &t); err != nil {
		return Submitted{}, err
	}
	sub.Session, sub.parent, sub.depth = t.SessionID, &t.ID, t.Depth+1
	by.AgentID = &agentID
	return s.submit(by, sub)
}

// depthOf is the depth from which on nothing is handed off to an agent: what it has said
// itself, and otherwise the policy's (PROTOCOL_V5 §2.4, §5.4).
func (s *step) depthOf(agentID string, p Policy) int {
	if w := s.crowd.worker(agentID); agentID != "" && w.MaxDepth != 0 {
		return min(w.MaxDepth, models.MaxTaskDepth+1)
	}
	return p.MaxDepth
}

// carve takes a part's budget out of its source's. A source without a budget has no
// bound to keep, and neither has a part that names none.
func (s *step) carve(t *models.Task, a *models.Attempt, part *int64) error {
	if part == nil || t.Budget == nil {
		return nil
	}
	left := *t.Budget - t.Tokens - *part
	if left < 1 {
		return errs.New(errs.BudgetExceeded, "the task %q has %d tokens left, which do not cover %d for another one", t.ID, *t.Budget-t.Tokens, *part).
			With("requested", *part).With("remaining", *t.Budget-t.Tokens)
	}
	t.Budget = new(*t.Budget - *part)
	if a.ReservationID != "" {
		err := s.ledger.ReleaseIn(s.tx, a.AgentID, a.ReservationID)
		if err != nil && !errs.Is(err, errs.ReservationEnded) { // its agent may have ended it by itself
			return err
		}
		r, err := s.ledger.ReserveIn(s.tx, a.AgentID, left, maxHold)
		if err != nil {
			return err
		}
		a.ReservationID = r.ID
	}
	return s.tx.Rebudget(t.ID, *t.Budget, a.Attempt, a.ReservationID)
}

// lockParts locks what a task was handed off into, and that in its turn: tasks are
// locked before workers. It returns the agents that have a part.
func (s *step) lockParts(taskID string) (agents []string, err error) {
	parts, err := s.tx.OpenChildren(taskID)
	for _, id := range parts {
		if err != nil {
			break
		}
		var t models.Task
		if t, err = s.tx.Task(id); err != nil {
			break
		}
		var more []string
		more, err = s.lockParts(id)
		agents = append(append(agents, t.AgentID), more...)
	}
	return agents, err
}

// cancelParts cancels what a task was handed off into.
func (s *step) cancelParts(taskID, why string) error {
	parts, err := s.tx.OpenChildren(taskID)
	for _, id := range parts {
		if err != nil {
			break
		}
		_, err = s.cancel(id, why)
	}
	return err
}
