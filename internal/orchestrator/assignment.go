package orchestrator

import (
	"encoding/binary"
	"encoding/json"
	"slices"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/orchestrator/selection"
	"comet/internal/usage"
	"comet/models"
)

// maxHold is the lifetime of a reservation. The end of an attempt settles or releases it before; maxHold limits
// reservations in a database that was restored from a backup.
const maxHold = usage.MaxReservationTTL * time.Second

// assign assigns a task to the best agent that has a free slot and whose budget covers it. The task is not saved yet.
// The agents in exclude get it only if there is no other one. The verdict is Chosen or the reason why there is no
// agent; the decision is stored in the task.
func (op *operation) assign(t *models.Task, in models.TaskInput, p Policy, exclude []string) (selection.Verdict, error) {
	siblings, err := op.siblingAgents(*t)
	if err != nil {
		return "", err
	}
	if op.known.accounts && t.Budget != nil && op.allowedWorkers == nil {
		if err := op.lockAccounts(selectionRequest(t.Depth, in, p, siblings), maxClaims, ""); err != nil {
			return "", err
		}
	}
	d := op.index.Select(selectionRequest(t.Depth, in, p, slices.Concat(exclude, siblings)))
	if d.Verdict == selection.Excluded {
		d = op.index.Select(selectionRequest(t.Depth, in, p, siblings)) // an agent that failed before is better than none
	}
	if d.Verdict == selection.Chosen && t.WaitingFor != models.WaitForWorker { // a new task does not overtake queued ones
		ahead, err := op.tx.Tasks().WaitsAhead(t.QueueKey, t.Priority)
		if err != nil {
			return "", err
		}
		if ahead {
			d.Verdict = selection.Saturated
		}
	}
	tried, eligible, full, refused := len(exclude), d.Eligible, d.WithoutCandidates() == selection.Saturated, 0
	for d.Verdict == selection.Chosen {
		for i, c := range d.Candidates {
			reason, err := op.claimSlot(t, c.AgentID)
			if err != nil {
				return "", err
			}
			if reason == "" { // the candidates before it are rejected
				d.Candidates = d.Candidates[i:]
				if t.Decision, err = json.Marshal(d); err == nil {
					err = op.dispatch(t, p)
				}
				return selection.Chosen, err
			}
			if reason == selection.ReasonOverBudget {
				refused++
			}
			c.Reason = reason
			d.Rejected = append(d.Rejected, c)
			exclude = append(exclude, c.AgentID)
		}
		d.Candidates = nil
		if eligible <= selection.MaxListed || len(exclude)-tried >= maxClaims {
			break
		}
		more := op.index.Select(selectionRequest(t.Depth, in, p, slices.Concat(exclude, siblings))) // the ones that were not listed
		if more.Verdict != selection.Chosen {
			break
		}
		d.Candidates, d.Rejected = more.Candidates, nil
	}
	if d.Verdict == selection.Chosen {
		d.Verdict = selection.Saturated
		if refused > 0 && refused >= eligible && !(full && t.WaitingFor == models.WaitForWorker) { // a queued task keeps waiting for them
			d.Verdict = selection.OverBudget
		}
	}
	d.Rejected = d.Rejected[:min(len(d.Rejected), selection.MaxListed)]
	t.Decision, err = json.Marshal(d)
	return d.Verdict, err
}

// maxClaims limits how many agents one assignment tries to claim a slot of.
const maxClaims = 100

// claimSlot claims a slot of an agent and reserves the task's budget, or returns why it could not.
func (op *operation) claimSlot(t *models.Task, agentID string) (selection.Reason, error) {
	if op.allowedWorkers != nil && !slices.Contains(op.allowedWorkers, agentID) {
		return selection.ReasonSaturated, nil
	}
	if ok, err := op.takeSlot(t, agentID); err != nil || !ok {
		return selection.ReasonSaturated, err
	}
	reservation := ""
	if t.Budget != nil {
		if op.holdsAccount && op.allowedWorkers == nil && !op.opts.Alone {
			return "", errLockAccounts
		}
		op.holdsAccount = true
		r, err := op.ledger.ReserveIn(op.tx, agentID, max(*t.Budget-t.Tokens, 1), maxHold)
		if errs.Is(err, errs.BudgetExceeded) || errs.Is(err, errs.AgentDeactivated) {
			t.AgentID = ""
			op.index.Release(agentID)
			op.slots = op.slots[:len(op.slots)-1]
			if errs.Is(err, errs.AgentDeactivated) {
				return selection.ReasonInactive, nil
			}
			op.budgetErrors = append(op.budgetErrors, errs.From(err))
			op.refusedBy = append(op.refusedBy, agentID)
			return selection.ReasonOverBudget, nil
		}
		if err != nil {
			return "", err
		}
		reservation = r.ID
	}
	t.Attempt++
	t.SetNewestAttempt(models.Attempt{State: models.AttemptAssigned, ReservationID: reservation, AssignedAt: op.tx.Now()})
	return "", nil
}

// dispatch assigns the task to its agent and sets the deadline. The row of the task is the message; the last two bytes
// of its id are the number of the attempt, so that a result can name the attempt by the message.
func (op *operation) dispatch(t *models.Task, p Policy) error {
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	binary.BigEndian.PutUint16(id[14:], uint16(t.Attempt)) //nolint:gosec // a task has few attempts
	t.MessageID = id.String()
	op.wakeAfterCommit(WakeInbox, t.AgentID)
	t.State, t.WaitingFor = models.TaskNew, models.NotWaiting
	t.Deadline = p.deadline(*t, op.tx.Now(), p.Timeout)
	t.Progress, t.Step, t.StepName, t.OutputBytes, t.LogBytes = 0, 0, "", 0, 0
	t.ExitCode, t.Detail = nil, nil
	if t.ID != op.insertingID { // for a new task, task.created names the agent
		op.emitTaskEvent(events.TaskAssigned, *t, nil)
	}
	return nil
}

// assignOrQueue assigns a task, queues it, schedules a retry or, if none of that is possible, fails it.
func (op *operation) assignOrQueue(t *models.Task, in models.TaskInput, p Policy, exclude []string) error {
	verdict, err := op.assign(t, in, p, exclude)
	switch {
	case err == nil && verdict == selection.Unavailable && !op.known.workers:
		return errStaleWorkers
	case err == nil && verdict == selection.Unsupported && !op.known.agents:
		return errStaleIndex
	case err != nil || verdict == selection.Chosen:
		return err
	case verdict == selection.OverBudget:
		op.failTask(t, FailureBudget, "no agent's budget covers it")
	case verdict == selection.Unsupported:
		op.failTask(t, FailureUnsupported, "no agent offers this work any more")
	case verdict == selection.Saturated:
		op.enqueue(t, p)
	default:
		return op.recordUnavailable(t, p)
	}
	return nil
}

// enqueue puts a task into its queue. A task that is queued already keeps its deadline.
func (op *operation) enqueue(t *models.Task, p Policy) {
	if t.WaitingFor == models.WaitForWorker {
		return
	}
	t.State, t.WaitingFor, t.AgentID = models.TaskNew, models.WaitForWorker, ""
	t.Deadline = p.deadline(*t, op.tx.Now(), p.QueueTimeout)
	op.wakeAfterCommit(WakeQueue, "") // a slot may have been released since the selection
	op.emitTaskEvent(events.TaskWaiting, *t, nil)
}

// recordUnavailable records a failed attempt because no agent was available, and schedules the next one or fails the
// task.
func (op *operation) recordUnavailable(t *models.Task, p Policy) error {
	const text = "no agent was available"
	now := op.tx.Now()
	t.Attempt++
	t.AgentID, t.ExitCode, t.Detail = "", nil, nil
	err := op.tx.Tasks().InsertAttempt(models.Attempt{
		TaskID: t.ID, Attempt: t.Attempt, State: models.AttemptFailed, ErrorCode: string(FailureUnavailable), Error: text,
		AssignedAt: now, EndedAt: &now,
	})
	if err == nil && p.allowsRetry(FailureUnavailable, *t) {
		op.scheduleRetry(t, p, FailureUnavailable)
	} else {
		op.failTask(t, FailureUnavailable, text)
	}
	return err
}

// scheduleRetry sets the time of the next attempt.
func (op *operation) scheduleRetry(t *models.Task, p Policy, why Failure) {
	t.State, t.WaitingFor = models.TaskNew, models.WaitForRetry
	t.Deadline = p.deadline(*t, op.tx.Now(), p.retryDelay(t.Attempt))
	op.emitTaskEvent(events.TaskRetried, *t, func(d *events.TaskData) { d.Failure, d.NextAttemptAt = string(why), &t.Deadline })
}
