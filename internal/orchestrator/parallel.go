package orchestrator

import (
	"context"
	"time"

	"github.com/google/uuid"

	"comet/internal/errs"
	"comet/internal/orchestrator/selection"
	"comet/models"
)

// A task that several workers do at a time (models.Parallel) has no agent of its own: it
// is given away as parts, each a task like any other, with its deadlines and retries, and
// no two of them with the same agent. What becomes of the whole is found out whenever a
// part has ended, by a job of its own, so that a part's end never waits for its whole.

// partKind is the kind of the job that looks at the whole once a part of it has ended.
const partKind = "task.part"

// wholeDeadline is when a whole is given up whose parts have not ended: each of them
// ends by itself long before.
const wholeDeadline = maxTimeout + 24*time.Hour

// checkParallel judges how many workers are wanted, and what for.
func (sub *Submission) checkParallel(wrong func(at, rule, format string, args ...any)) {
	p := sub.Override.Parallel
	if p == nil {
		return
	}
	if p.Workers < 2 || p.Workers > models.MaxParallel {
		wrong("/parallel/workers", "range", "parallel.workers must be 2 to %d, not %d", models.MaxParallel, p.Workers)
	}
	known := false
	for _, a := range models.Aggregates() {
		known = known || a == p.Aggregate
	}
	if !known {
		wrong("/parallel/aggregate", "oneof", "parallel.aggregate must be first, all, majority or merge, not %q", p.Aggregate)
	}
	if b := sub.Budget; b != nil && *b > 0 && *b < int64(p.Workers) {
		wrong("/budget", "min", "budget must be a token for each of %d workers at least, not %d", p.Workers, *b)
	}
	if sub.Agent != "" {
		wrong("/parallel", "conflict", "one agent is named, which is not several workers")
	}
}

// spread submits a task that several workers are to do. The first part is placed as any
// task is, so that it may wait for a worker; each further one only where another worker
// is free now.
func (s *step) spread(by models.Principal, sub Submission) (Submitted, error) {
	t, in, err := sub.task(by, s.tx.Now())
	if err != nil {
		return Submitted{}, err
	}
	t.WaitingFor, t.Attempt, t.Deadline = models.NotWaiting, 1, s.tx.Now().Add(wholeDeadline)
	s.inserting = t.ID
	if err := s.emit(models.EventTaskCreated, t, nil); err != nil {
		return Submitted{}, err
	}
	if err := s.insert(t, in); err != nil {
		return Submitted{}, orTaken(err, t.ID)
	}
	s.inserting = ""
	err = s.tx.InsertAttempt(models.Attempt{TaskID: t.ID, Attempt: 1, State: models.AttemptAssigned, AssignedAt: s.tx.Now()})
	if err == nil {
		err = s.parts(by, sub, t)
	}
	if err != nil {
		return Submitted{}, err
	}
	before := t
	t.State, t.StartedAt = models.TaskRunning, new(s.tx.Now())
	if err = s.emit(models.EventTaskStarted, t, nil); err == nil {
		err = s.save(before, &t)
	}
	return Submitted{Task: t}, err
}

// parts submits the parts of a task.
func (s *step) parts(by models.Principal, sub Submission, whole models.Task) error {
	wanted := *sub.Override.Parallel
	sub.RequestID, sub.parent, sub.depth = "", &whole.ID, whole.Depth
	sub.Override.Parallel, sub.Override.Notify, sub.Override.Part = nil, false, true
	sub.divide(wanted.Workers)
	if err := s.lockCandidates(sub, whole, whole.Depth, wanted.Workers, ""); err != nil {
		return err
	}
	var taken []string
	for n := range wanted.Workers {
		id, err := uuid.NewV7()
		if err != nil {
			return err
		}
		sub.ID = id.String()
		t, in, err := sub.task(by, s.tx.Now())
		if err != nil {
			return err
		}
		p := s.policy(t, sub.Override)
		if n > 0 && s.index.Select(request(t.Depth, in, p, taken)).Verdict != selection.Chosen {
			return nil
		}
		if sub.Session != "" {
			if err := s.joinSession(by, sub); err != nil {
				return err
			}
		}
		if t, err = s.enter(t, in, p, n == 0); err != nil || t.AgentID == "" {
			return err
		}
		taken = append(taken, t.AgentID)
	}
	return nil
}

// divide leaves of what a task may use, and may be raised to, what one of several workers
// may: all of them together never use more.
func (sub *Submission) divide(workers int) {
	if sub.Budget == nil {
		return
	}
	sub.Budget = new(*sub.Budget / int64(workers))
	o := sub.Override.Overrun
	if o == nil || o.MaxBudget == 0 {
		return
	}
	part := models.Overrun{Action: o.Action, MaxBudget: o.MaxBudget / int64(workers)}
	if part.MaxBudget < *sub.Budget { // 0 would be no bound
		part = models.Overrun{Action: models.OverrunGiveUp}
	}
	sub.Override.Overrun = &part
}

// lockCandidates locks up to about most of the workers that may get what is submitted,
// and an agent beside them, in the one order in which several are locked. Nobody else gets
// anything in this step.
func (s *step) lockCandidates(sub Submission, of models.Task, depth, most int, beside string) error {
	if sub.Session != "" { // before workers
		if err := s.lockSession(of); err != nil {
			return err
		}
	}
	in := models.TaskInput{Capabilities: sub.Capabilities, AgentType: sub.AgentType, Sphere: sub.Sphere, RequestedAgentID: sub.Agent}
	p := s.policy(models.Task{Class: sub.Class}, sub.Override) // not that of its source
	s.only = []string{}
	for len(s.only) < most {
		d := s.index.Select(request(depth, in, p, s.only))
		for _, c := range d.Candidates {
			s.only = append(s.only, c.AgentID)
		}
		if d.Eligible <= len(d.Candidates) {
			break
		}
	}
	all := append([]string{beside}, s.only...)
	if sub.Budget == nil {
		return s.tx.LockWorkers(all)
	}
	return s.lockAgents(all)
}

// Parts returns what a task was given to several workers as, or handed off into, in the
// order in which that was done.
func (o *Orchestrator) Parts(ctx context.Context, taskID string) ([]models.Task, error) {
	return o.store.Children(ctx, taskID)
}

// orTaken names an id that is taken.
func orTaken(err error, id string) error {
	if errs.Is(err, errs.Conflict) { // all ids but the task's are made here
		return errs.New(errs.TaskExists, "a task with the id %q exists", id)
	}
	return err
}
