package orchestrator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"comet/internal/errs"
	"comet/internal/orchestrator/selection"
	"comet/models"
)

// maxHold is how long a reservation lasts that nobody settles. An attempt's end always
// settles or releases it; this is for a database that was put back from a copy.
const maxHold = models.MaxReservationTTL * time.Second

// ReasonOverBudget is why an agent is out whose budget does not cover the task. It is
// found out in the ledger, so selection does not know it.
const ReasonOverBudget selection.Reason = "over_budget"

// assign gives a task to the best agent that has a place free and whose budget covers
// it. The task is not saved yet. exclude are agents that shall not have it, unless
// nobody else does. The verdict is Chosen, or why nobody was; the selection's answer is
// stored on the task either way.
func (op *operation) assign(t *models.Task, in models.TaskInput, p Policy, exclude []string) (selection.Verdict, error) {
	siblings, err := op.siblingAgents(*t, in)
	if err != nil {
		return "", err
	}
	d := op.index.Select(selectionRequest(t.Depth, in, p, slices.Concat(exclude, siblings)))
	if d.Verdict == selection.Excluded {
		d = op.index.Select(selectionRequest(t.Depth, in, p, siblings)) // better one that failed than none
	}
	if d.Verdict == selection.Chosen && t.WaitingFor != models.WaitForWorker { // who comes now does not overtake who waits
		ahead, err := op.tx.WaitsAhead(t.QueueKey, t.Priority)
		if err != nil {
			return "", err
		}
		if ahead {
			d.Verdict = selection.Saturated
		}
	}
	tried, refused, eligible, full := len(exclude), 0, d.Eligible, hasFullAgent(d)
	for d.Verdict == selection.Chosen {
		chosen, over, err := op.claimFirstSlot(t, in, &d)
		if err != nil {
			return "", err
		}
		if chosen {
			if t.Decision, err = json.Marshal(d); err != nil {
				return "", err
			}
			return selection.Chosen, op.dispatch(t, p)
		}
		refused += over
		for _, r := range d.Rejected {
			exclude = append(exclude, r.AgentID)
		}
		if eligible <= selection.MaxListed || len(exclude)-tried >= maxClaims {
			break
		}
		more := op.index.Select(selectionRequest(t.Depth, in, p, slices.Concat(exclude, siblings))) // those that were not listed
		if more.Verdict != selection.Chosen {
			break
		}
		d.Candidates, d.Rejected = more.Candidates, nil
	}
	if d.Verdict == selection.Chosen {
		d.Verdict = selection.Saturated
		if refused > 0 && refused >= eligible && !(full && t.WaitingFor == models.WaitForWorker) { // who waits goes on waiting for them
			d.Verdict = verdictOverBudget
		}
	}
	d.Rejected = d.Rejected[:min(len(d.Rejected), selection.MaxListed)]
	text, err := json.Marshal(d)
	t.Decision = text
	return d.Verdict, err
}

// hasFullAgent reports whether somebody could do the work and has no place free now. They
// are the nearest misses, which a decision lists first.
func hasFullAgent(d selection.Decision) bool {
	if len(d.Rejected) == 0 {
		return false
	}
	why := d.Rejected[0].Reason
	return why == selection.ReasonSaturated || why == selection.ReasonBusy
}

// maxClaims bounds how many agents one assignment asks for a place.
const maxClaims = 100

// claimFirstSlot takes a place of the first candidate that has one and whose budget covers
// the task; it is the first of them then. Those that have not are rejected, over of them
// for their budgets.
func (op *operation) claimFirstSlot(t *models.Task, in models.TaskInput, d *selection.Decision) (chosen bool, over int, err error) {
	for i, c := range d.Candidates {
		reason, err := op.claimSlot(t, in, c.AgentID)
		if err != nil {
			return false, over, err
		}
		if reason == "" {
			d.Candidates = d.Candidates[i:]
			return true, over, nil
		}
		if reason == ReasonOverBudget {
			over++
		}
		d.Rejected = append(d.Rejected, selection.Rejection{Ranked: c, Reason: reason})
	}
	d.Candidates = nil
	return false, over, nil
}

// verdictOverBudget is the verdict where the budgets of all who could do it refused.
const verdictOverBudget selection.Verdict = "over_budget"

// claimSlot takes a place of an agent and reserves the task's budget there; the reason says
// why it could not.
func (op *operation) claimSlot(t *models.Task, in models.TaskInput, agentID string) (selection.Reason, error) {
	if op.allowedWorkers != nil && !slices.Contains(op.allowedWorkers, agentID) {
		return selection.ReasonSaturated, nil
	}
	w, ok, err := op.tx.ClaimSlot(agentID, op.allowedWorkers != nil || !op.claimed) // those of only are locked
	op.claimed = true
	if err != nil || !ok {
		return selection.ReasonSaturated, err
	}
	siblings, err := op.siblingAgents(*t, in) // again with the lock: another replica may have assigned a subtask
	if err != nil {
		return "", err
	}
	if slices.Contains(siblings, agentID) {
		w.InFlight--
		return selection.ReasonExcluded, op.tx.SaveWorker(&w)
	}
	t.AgentID = agentID
	reservation := ""
	if t.Budget != nil {
		r, err := op.ledger.ReserveIn(op.tx, agentID, max(*t.Budget-t.Tokens, 1), maxHold)
		if errs.Is(err, errs.BudgetExceeded) || errs.Is(err, errs.AgentDeactivated) {
			w.InFlight--
			t.AgentID = ""
			if err := op.tx.SaveWorker(&w); err != nil {
				return "", err
			}
			if errs.Is(err, errs.AgentDeactivated) {
				return selection.ReasonInactive, nil
			}
			op.maxRemaining, op.overBudget = max(op.maxRemaining, remainingTokens(err)), true
			op.refusedBy = append(op.refusedBy, agentID)
			return ReasonOverBudget, nil
		}
		if err != nil {
			return "", err
		}
		reservation = r.ID
	}
	op.changedWorkers = append(op.changedWorkers, w)
	t.Attempt++
	return "", op.tx.InsertAttempt(models.Attempt{
		TaskID: t.ID, Attempt: t.Attempt, AgentID: agentID, State: models.AttemptAssigned, ReservationID: reservation, AssignedAt: op.tx.Now(),
	})
}

// remainingTokens is what the budget that refused has left, as the ledger's error says.
func remainingTokens(err error) int64 {
	var e *errs.Error
	if !errors.As(err, &e) {
		return 0
	}
	n, _ := e.Meta["remaining"].(int64)
	return n
}

// dispatch tells the agent and sets the deadline.
func (op *operation) dispatch(t *models.Task, p Policy) error {
	t.State, t.WaitingFor, t.Deadline = models.TaskNew, models.NotWaiting, op.tx.Now().Add(p.Timeout)
	t.Progress, t.Step, t.StepName, t.OutputBytes, t.LogBytes = 0, 0, "", 0, 0
	t.ExitCode, t.Detail = nil, nil // of an earlier attempt
	_, err := op.tx.EnqueueMessage(models.InboxMessage{AgentID: t.AgentID, Kind: models.MessageAssign, Priority: t.Priority, TaskID: t.ID, Attempt: t.Attempt})
	if err != nil {
		return err
	}
	op.wakeAfterCommit(WakeInbox, t.AgentID)
	return op.emitTaskEvent(models.EventTaskAssigned, *t, nil)
}

// assignOrQueue does with a task what follows from the verdict of assign: it goes to its agent,
// into the line, into the wait for a retry, or it fails. Where it has failed for good,
// the failure is returned.
func (op *operation) assignOrQueue(t *models.Task, in models.TaskInput, p Policy, exclude []string) (Failure, error) {
	verdict, err := op.assign(t, in, p, exclude)
	if err == nil && verdict == selection.Unavailable && !op.refreshed { // who has just come may not be known here yet
		op.refreshed = true
		if err = op.refreshWorkers(context.Background()); err == nil {
			verdict, err = op.assign(t, in, p, exclude)
		}
	}
	switch {
	case err != nil || verdict == selection.Chosen:
		return "", err
	case verdict == verdictOverBudget:
		return FailureBudget, nil
	case verdict == selection.Unsupported:
		return FailureUnsupported, nil
	case verdict == selection.Saturated:
		return "", op.enqueue(t, p)
	}
	return op.recordUnavailable(t, p)
}

// enqueue puts a task into its line. What waited before goes on waiting until its old
// deadline.
func (op *operation) enqueue(t *models.Task, p Policy) error {
	if t.WaitingFor == models.WaitForWorker {
		return nil
	}
	t.State, t.WaitingFor, t.AgentID, t.Deadline = models.TaskNew, models.WaitForWorker, "", op.tx.Now().Add(p.QueueTimeout)
	op.wakeAfterCommit(WakeQueue, "") // a place may have become free since the index was asked
	return op.emitTaskEvent(models.EventTaskWaiting, *t, nil)
}

const noAgentText = "no agent was there to take it"

// assignFailureText is what a failure to assign a task is told with.
func assignFailureText(f Failure) string {
	switch f {
	case FailureBudget:
		return "the budgets of all who could do it do not cover it"
	case FailureUnsupported:
		return "no agent offers this any more"
	}
	return noAgentText
}

// recordUnavailable counts an attempt for which no agent was there.
func (op *operation) recordUnavailable(t *models.Task, p Policy) (Failure, error) {
	now := op.tx.Now()
	t.Attempt++
	t.AgentID, t.ExitCode, t.Detail = "", nil, nil
	err := op.tx.InsertAttempt(models.Attempt{
		TaskID: t.ID, Attempt: t.Attempt, State: models.AttemptFailed, ErrorCode: string(FailureUnavailable), Error: noAgentText,
		AssignedAt: now, EndedAt: &now,
	})
	if err != nil || !p.allowsRetry(FailureUnavailable, *t) {
		return FailureUnavailable, err
	}
	return "", op.scheduleRetry(t, p, FailureUnavailable)
}

// scheduleRetry sets the time of the next attempt.
func (op *operation) scheduleRetry(t *models.Task, p Policy, why Failure) error {
	t.State, t.WaitingFor, t.Deadline = models.TaskNew, models.WaitForRetry, op.tx.Now().Add(p.retryDelay(t.Attempt))
	return op.emitTaskEvent(models.EventTaskRetried, *t, func(d *models.TaskChanged) { d.Failure, d.NextAttemptAt = string(why), &t.Deadline })
}

// requirements says in words what a task needs of an agent.
func requirements(in models.TaskInput) string {
	text := strings.Join(in.Capabilities, ", ")
	if text == "" {
		text = "this"
	}
	if in.AgentType != "" {
		text += fmt.Sprintf(" as an agent of the type %q", in.AgentType)
	}
	if in.Sphere != 0 {
		text += fmt.Sprintf(" in sphere %d", in.Sphere)
	}
	if in.RequestedAgentID != "" {
		text += fmt.Sprintf(" and is %q", in.RequestedAgentID)
	}
	return text
}
