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

// firstTaskNumberV4 is the TID of a task that is the first in its session.
func firstTaskNumberV4(context int64) int { return int((context-1)%wire.MaxTask) + 1 }

// taskV4 is the TID under which a worker of V4 is given the task that a message of V5
// is about.
func taskV4(m wire.Message) wire.Task {
	n, _ := contextNumber(m.Context)
	tid, _ := m.Task.Number()
	return wire.TaskOf(firstTaskNumberV4(n + stepTask*int64(tid-1) + stepDepth*int64(m.Depth)))
}

// maxRecentTasks is how many of a worker's newest tasks it is looked for the one that it speaks of
// after it has ended.
const maxRecentTasks = 20

// findWorkV4 finds the task that an agent speaks of among those it has, and for a worker
// of V4 then among those it had last.
func (p *Protocol) findWorkV4(ctx context.Context, s *sender, tid int) error {
	orders, err := p.orchestrator.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return err
	}
	has := make([]models.Task, len(orders))
	for i, o := range orders {
		has[i] = o.Task
	}
	only := p.knowsOnlyV4(s.agentID)
	found, err := p.filterByTaskV4(ctx, has, tid, only)
	if err == nil && len(found) == 0 && only {
		if has, err = p.orchestrator.Tasks(ctx, models.TaskQuery{AgentID: s.agentID, Limit: maxRecentTasks}); err == nil {
			found, err = p.filterByTaskV4(ctx, has, tid, only)
		}
	}
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return errorf(wire.E40, "", "%s has no task T%d", s.address, tid)
	case len(found) > 1 && !only:
		return errorf(wire.E42, "", "T%d is not all that %s has of this name: say CTX, in a line of V5", tid, s.address)
	}
	s.task = &found[0]
	return nil
}

// filterByTaskV4 returns the tasks that have a TID: that of V4 for a worker that knows only
// that, and for another one its own in each session.
func (p *Protocol) filterByTaskV4(ctx context.Context, tasks []models.Task, tid int, only bool) (out []models.Task, err error) {
	for _, t := range tasks {
		root, err := p.rootTask(ctx, t)
		if err != nil {
			return nil, err
		}
		h, err := p.orchestrator.ShortID(ctx, root.ID, root.SessionID)
		if err != nil {
			return nil, err
		}
		name := wire.TaskOf(h.Task)
		if only {
			name = taskV4(wire.Message{Task: name, Context: contextName(h.Context), Depth: min(t.Depth, wire.MaxDepth)})
		}
		if name == wire.TaskOf(tid) {
			out = append(out, t)
		}
	}
	return out, nil
}

// findRequestV4 finds the task that somebody speaks of who asked for it in V4: the newest
// with the TID.
func (p *Protocol) findRequestV4(ctx context.Context, s *sender, tid int) error {
	tasks, err := p.orchestrator.TasksByNumber(ctx, s.TokenID, tid, maxRecentTasks)
	if err != nil {
		return err
	}
	for _, t := range tasks {
		order, err := p.orchestrator.TaskWithInput(ctx, t.ID)
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		if kept, err := readRequestMeta(order.Input); err == nil && t.Class == Class && kept.V4 {
			s.task = &order.Task
			return nil
		}
	}
	return errorf(wire.E42, "", "%s has asked for no T%d in V4: say CTX, in a line of V5", s.address, tid)
}
