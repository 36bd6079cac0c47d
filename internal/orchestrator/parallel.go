package orchestrator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/jobs"
	"comet/internal/orchestrator/selection"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// A parallel task (Override.Workers > 1) has no agent of its own. It has subtasks: tasks like any
// other, with their own deadlines and retries, no two of them with the same agent. The first success
// is the result of the parent, and the other subtasks are cancelled. A job decides about the parent
// after each end of a subtask, so that the end of a subtask never waits for the lock of its parent.

// MaxParallel is the maximum number of workers that execute one task at the same time.
const MaxParallel = 16

// subtaskKind is the kind of the job that decides about a parent task after one of its
// subtasks has ended. Its key is the id of the subtask.
const subtaskKind = "task.subtask"

// lateMark separates the id of a subtask from an attempt number in the key of a job that
// runs because a late message has changed the tokens of a subtask that had ended before.
const lateMark = "/"

// parentDeadline is the time after which a parent task fails if its subtasks have not ended. They
// normally end long before.
const parentDeadline = maxTimeout + 24*time.Hour

// checkWorkers validates Override.Workers.
func (sub *Submission) checkWorkers(wrong func(at, rule, format string, args ...any)) {
	n := sub.Override.Workers
	if n == 0 {
		return
	}
	if n < 2 || n > MaxParallel {
		wrong("/workers", "range", "workers must be 2 to %d, not %d", MaxParallel, n)
	}
	if b := sub.Budget; b != nil && *b > 0 && *b < int64(n) {
		wrong("/budget", "min", "budget must be at least one token for each of %d workers, not %d", n, *b)
	}
	if sub.AgentID != "" {
		wrong("/workers", "conflict", "one agent cannot be several workers")
	}
}

// submitParallel submits a task for several workers. The first subtask is assigned like any task,
// so it may wait for a worker; each further one is made only if another worker is free now.
func (op *operation) submitParallel(by models.Principal, sub Submission, request store.TaskRequest) (models.Task, error) {
	t, in, err := sub.newTask(by, op.tx.Now())
	if err != nil {
		return t, err
	}
	t.WaitingFor, t.Attempt, t.Deadline = models.NotWaiting, 1, op.tx.Now().Add(parentDeadline)
	t.SetNewestAttempt(models.Attempt{State: models.AttemptAssigned, AssignedAt: op.tx.Now()})
	op.insertingID = t.ID
	op.emitTaskEvent(events.TaskCreated, t, nil)
	if err := op.insertTask(t, in, request); err != nil {
		return t, taskExistsError(err, t.ID)
	}
	op.insertingID = ""
	before := t
	if t.Subtasks, err = op.submitSubtasks(by, sub, t); err != nil {
		return t, err
	}
	t.State, t.StartedAt = models.TaskRunning, new(op.tx.Now())
	op.emitTaskEvent(events.TaskStarted, t, nil)
	err = op.saveTask(before, &t)
	return t, err
}

// submitSubtasks submits the subtasks of a parallel task and returns their number.
func (op *operation) submitSubtasks(by models.Principal, sub Submission, parent models.Task) (made int, err error) {
	workers := sub.Override.Workers
	sub.RequestID, sub.parentID, sub.depth = "", &parent.ID, parent.Depth
	sub.Override.Workers, sub.Override.Notify, sub.Override.Partials, sub.Override.Receipts, sub.OnEnd = 0, false, false, false, &EndJob{Kind: subtaskKind}
	sub.divideBudget(workers)
	if err := op.lockCandidates(sub, parent, parent.Depth, workers, ""); err != nil {
		return 0, err
	}
	var assigned []string
	for n := range workers {
		id, err := uuid.NewV7()
		if err != nil {
			return n, err
		}
		sub.ID = id.String()
		t, in, err := sub.newTask(by, op.tx.Now())
		if err != nil {
			return n, err
		}
		p := op.policyOf(t, sub.Override)
		if n > 0 && op.index.Select(selectionRequest(t.Depth, in, p, slices.Concat(assigned, op.known.unavailable))).Verdict != selection.Chosen {
			return n, nil
		}
		if sub.SessionID != "" {
			if err := op.joinSession(by, sub); err != nil {
				return n, err
			}
		}
		if t, err = op.createTask(t, in, p, store.TaskRequest{}, n == 0); err != nil || t.AgentID == "" {
			return n + 1, err
		}
		assigned = append(assigned, t.AgentID)
	}
	return workers, nil
}

// divideBudget reduces the budget, and its limit, to the share of one of several workers, so that
// all of them together never use more.
func (sub *Submission) divideBudget(workers int) {
	if sub.Budget == nil {
		return
	}
	sub.Budget = new(*sub.Budget / int64(workers))
	o := sub.Override.Overrun
	if o == nil || o.MaxBudget == 0 {
		return
	}
	share := Overrun{Action: o.Action, MaxBudget: o.MaxBudget / int64(workers)}
	if share.MaxBudget < *sub.Budget { // 0 would mean no limit
		share = Overrun{Action: OverrunGiveUp}
	}
	sub.Override.Overrun = &share
}

// lockCandidates locks the session of a submission and, if it has a budget, the accounts of the agents
// that may get it, see lockAccounts.
func (op *operation) lockCandidates(sub Submission, of models.Task, depth, most int, beside string) error {
	if sub.SessionID != "" { // before accounts
		if err := op.lockTaskSession(of); err != nil {
			return err
		}
	}
	if sub.Budget == nil {
		return nil
	}
	in := models.TaskInput{Capabilities: sub.Capabilities, AgentType: sub.AgentType, Sphere: sub.SphereID, RequestedAgentID: sub.AgentID}
	p := op.policyOf(models.Task{Class: sub.Class}, sub.Override) // the policy of the subtasks, not of the parent
	return op.lockAccounts(selectionRequest(depth, in, p, nil), most, beside)
}

// lockAccounts locks the accounts of the agent beside and of the agents that a request selects, at
// least most of them or all that exist, in the order in which all operations lock accounts. This
// operation assigns tasks to no other agents.
func (op *operation) lockAccounts(r selection.Request, most int, beside string) error {
	exclude := slices.Concat(r.Exclude, op.known.unavailable)
	op.allowedWorkers = []string{}
	for len(op.allowedWorkers) < most {
		r.Exclude = slices.Concat(exclude, op.allowedWorkers)
		d := op.index.Select(r)
		for _, c := range d.Candidates {
			op.allowedWorkers = append(op.allowedWorkers, c.AgentID)
		}
		if d.Eligible <= len(d.Candidates) {
			break
		}
	}
	return op.ledger.LockIn(op.tx, append([]string{beside}, op.allowedWorkers...))
}

// Subtasks returns the subtasks of a task, the oldest first.
func (o *Orchestrator) Subtasks(ctx context.Context, taskID string) ([]models.Task, error) {
	return o.store.Tasks(ctx).Children(taskID)
}

// updateParent runs the job that follows the end of a subtask.
func (o *Orchestrator) updateParent(ctx context.Context, job *jobs.Job) error {
	id, _, _ := strings.Cut(job.Key, lateMark)
	subtask, err := o.store.Tasks(ctx).Get(id)
	if errs.Is(err, errs.NotFound) || err == nil && subtask.ParentID == nil {
		return nil // it was purged
	}
	if err != nil {
		return err
	}
	return o.transact(ctx, func(op *operation) error {
		t, err := op.tx.Tasks().Lock(*subtask.ParentID) // before its job, as in every operation
		if err != nil && !errs.Is(err, errs.NotFound) {
			return err
		}
		if e := job.Finish(op.tx); e != nil || err != nil {
			return e
		}
		in, err := op.tx.Tasks().Input(t)
		if err != nil {
			return err
		}
		if o, err := overrideOf(in); err != nil || o.Workers == 0 {
			return err // its subtasks were handed off
		}
		subtasks, err := op.tx.Tasks().Children(t.ID)
		if err != nil {
			return err
		}
		return op.decideParent(t, subtasks)
	})
}

// decideParent ends a parallel task after the first success of its subtasks, or after the
// last failure. Until then it records their tokens and how many have ended.
func (op *operation) decideParent(t models.Task, subtasks []models.Task) error {
	var first, last *models.Task // the first success and the last failure
	tokens, open := int64(0), 0
	for i := range subtasks {
		sub := &subtasks[i]
		tokens += sub.Tokens
		switch {
		case !sub.State.Ended():
			open++
		case sub.State != models.TaskDone:
			if last == nil || !sub.EndedAt.Before(*last.EndedAt) {
				last = sub
			}
		case first == nil || sub.EndedAt.Before(*first.EndedAt):
			first = sub
		}
	}
	if t.State.Ended() { // late tokens are counted nevertheless
		return op.tx.Tasks().AddTokens(t.ID, max(tokens-t.Tokens, 0), false)
	}
	before := t
	t.Tokens = max(t.Tokens, tokens)
	switch {
	case first != nil:
		return op.completeParent(before, t, *first)
	case open == 0: // last is not nil: the parent is decided only after a subtask has ended
		text := last.Error
		if n := len(subtasks); n > 1 {
			text = fmt.Sprintf("%s (%s, the last of %d workers)", text, last.AgentID, n)
		}
		t.ExitCode, t.Detail = last.ExitCode, last.Detail
		return op.failParent(before, t, cmp.Or(Failure(last.ErrorCode), FailureUnavailable), text) // without a code, the subtask was cancelled
	}
	t.Progress = max(t.Progress, 100*(len(subtasks)-open)/len(subtasks))
	op.emitTaskEvent(events.TaskProgress, t, nil)
	return op.saveTask(before, &t)
}

// completeParent ends a parent task with the result of one of its subtasks.
func (op *operation) completeParent(before, t models.Task, subtask models.Task) error {
	err := op.endParentAttempt(&t, attemptEnd{state: models.AttemptSucceeded, outcome: usage.OutcomeSuccess})
	if err != nil {
		return err
	}
	t.ExitCode, t.Detail, t.Output, t.OutputBytes = subtask.ExitCode, subtask.Detail, subtask.Output, subtask.OutputBytes
	if t.Output == nil && t.OutputBytes > 0 {
		from, err := succeededAttempt(subtask, op.tx.Tasks().EarlierAttempts)
		if err == nil {
			t.OutputBytes, err = op.tx.Tasks().CopyOutput(subtask.ID, from, t.ID, t.Attempt)
		}
		if err != nil {
			return err
		}
	}
	return op.completeTask(before, &t)
}

// failParent ends a parent task without a result.
func (op *operation) failParent(before, t models.Task, f Failure, text string) error {
	err := op.endParentAttempt(&t, attemptEnd{state: models.AttemptFailed, failure: f, text: text, outcome: usage.OutcomeFailed})
	if err != nil {
		return err
	}
	op.failTask(&t, f, text)
	return op.saveTask(before, &t)
}

// endParentAttempt cancels the open subtasks of a parent task and ends its only attempt.
func (op *operation) endParentAttempt(t *models.Task, r attemptEnd) error {
	_, p, err := op.lockForEnd(*t)
	if err != nil {
		return err
	}
	if err := op.cancelSubtasks(t.ID, "the parent task has ended"); err != nil {
		return err
	}
	a, err := op.heldAttempt(*t)
	if err != nil {
		return err
	}
	return op.endAttempt(t, &a, r, p)
}

// siblingAgents returns the agents that have, or had, an attempt at another subtask of the same
// parallel task. None of them gets this subtask, so each message of an agent about the task refers
// to one subtask. It returns nil for other tasks.
func (op *operation) siblingAgents(t models.Task) ([]string, error) {
	if t.OnEnd != subtaskKind {
		return nil, nil
	}
	return op.tx.Tasks().AgentsBeside(*t.ParentID, t.ID)
}

// taskExistsError replaces a conflict by an error that names the task id.
func taskExistsError(err error, id string) error {
	if errs.Is(err, errs.Conflict) { // all other ids are generated
		return errs.New(errs.TaskExists, "a task with the id %q exists", id)
	}
	return err
}
