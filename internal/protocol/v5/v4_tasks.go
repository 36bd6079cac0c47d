package v5

import (
	"context"

	wire "comet/internal/wire/v5"
	"comet/models"
)

// Nearly every task is the first in its session, T1. In V4, which cannot say in which
// session, two that follow one another would have the same name, and the late result of
// the one would be taken for that of the other. So a task has a TID of its own in V4, which
// goes on counting where sessions do.

// The steps from one TID of V4 to another: to the next session it is 1, so that only
// sessions that are far apart share one, and to what is in the same session more.
const (
	stepTask  = 37
	stepDepth = 331
)

// countedV4 is the TID of a task that is the first in its session.
func countedV4(context int64) int { return int((context-1)%wire.MaxTask) + 1 }

// numberV4 is the TID under which a worker of V4 is given the task that a message of V5
// is about.
func numberV4(m wire.Message) wire.Task {
	n, _ := contextNumber(m.Context)
	tid, _ := m.Task.Number()
	return wire.TaskOf(countedV4(n + stepTask*int64(tid-1) + stepDepth*int64(m.Depth)))
}

// known is how many of a worker's newest tasks it is looked for the one that it speaks of
// after it has ended.
const known = 20

// recallWork finds the task that an agent speaks of among those it has, and for a worker
// of V4 then among those it had last.
func (d *Protocol) recallWork(ctx context.Context, s *speaker, tid int) error {
	orders, err := d.work.OpenTasksOf(ctx, s.agent)
	if err != nil {
		return err
	}
	has := make([]models.Task, len(orders))
	for i, o := range orders {
		has[i] = o.Task
	}
	only := d.knowsOnlyV4(s.agent)
	found, err := d.calledV4(ctx, has, tid, only)
	if err == nil && len(found) == 0 && only {
		if has, err = d.work.Tasks(ctx, models.TaskQuery{AgentID: s.agent, Limit: known}); err == nil {
			found, err = d.calledV4(ctx, has, tid, only)
		}
	}
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return refuse(wire.E40, "", "%s has no task T%d", s.address, tid)
	case len(found) > 1 && !only:
		return refuse(wire.E42, "", "T%d is not all that %s has of this name: say CTX, in a line of V5", tid, s.address)
	}
	s.of = &found[0]
	return nil
}

// calledV4 returns the tasks that have a TID: that of V4 for a worker that knows only
// that, and for another one its own in each session.
func (d *Protocol) calledV4(ctx context.Context, tasks []models.Task, tid int, only bool) (out []models.Task, err error) {
	for _, t := range tasks {
		root, err := d.root(ctx, t)
		if err != nil {
			return nil, err
		}
		h, err := d.work.ShortID(ctx, root.ID, root.SessionID)
		if err != nil {
			return nil, err
		}
		name := wire.TaskOf(h.Task)
		if only {
			name = numberV4(wire.Message{Task: name, Context: contextName(h.Context), Depth: min(t.Depth, wire.MaxDepth)})
		}
		if name == wire.TaskOf(tid) {
			out = append(out, t)
		}
	}
	return out, nil
}

// recallAsked finds the task that somebody speaks of who asked for it in V4: the newest
// with the TID.
func (d *Protocol) recallAsked(ctx context.Context, s *speaker, tid int) error {
	tasks, err := d.work.TasksNumbered(ctx, s.TokenID, tid, known)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		order, err := d.work.TaskWithInput(ctx, t.ID)
		if isGone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if kept, err := metaOf(order.Input); err == nil && t.Class == Class && kept.V4 {
			s.of = &order.Task
			return nil
		}
	}
	return refuse(wire.E42, "", "%s has asked for no T%d in V4: say CTX, in a line of V5", s.address, tid)
}
