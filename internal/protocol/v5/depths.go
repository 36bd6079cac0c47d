package v5

import (
	"cmp"
	"context"
	"slices"

	wire "comet/internal/wire/v5"
	"comet/models"
)

// A Q at a DEPTH above 0 is about a part of the task that it names, because a part has the
// TID of its source (PROTOCOL_V5 §5.3). There may be several at one depth, so that it
// matters who asks: the part is one that the speaker does or has handed off, and whoever
// asked for the task itself means the newest of all.

// queriedTask is the task that a Q is about: at DEPTH 0 the one that it names, deeper a part of
// that. A part that is none of the speaker's is E40.
func (p *Protocol) queriedTask(ctx context.Context, s sender, m wire.Message) (models.Task, error) {
	t, err := p.namedTask(ctx, m)
	if err != nil || m.Depth == 0 {
		return t, err
	}
	parts, err := p.subtasksAt(ctx, t, m.Depth)
	if err != nil {
		return t, err
	}
	for _, sub := range parts {
		if mine, err := p.worksOnSubtask(ctx, s.agentID, sub); err != nil || mine {
			return sub.Task, err
		}
	}
	if len(parts) > 0 && s.owns(t) {
		return parts[0].Task, nil
	}
	return t, errorf(wire.E40, "", "%s has no part of %s in %s at depth %d", s.address, m.Task, m.Context, m.Depth)
}

// referencedTask returns the task whose field, or whose session's, a Q with ref= reads, and the
// name by which the reference calls it. Another task than the Q is about is that at DEPTH 0.
func (p *Protocol) referencedTask(ctx context.Context, s sender, m wire.Message, ref wire.Ref) (models.Task, wire.Task, error) {
	about := m
	if about.Task = cmp.Or(ref.Task, m.Task); ref.Kind != wire.RefTask {
		about.Depth = 0 // all of a task is in one session
	}
	if tid, ok := m.Task.Number(); ok && tid > 0 && about.Task != m.Task {
		about.Depth = 0
	}
	t, err := p.queriedTask(ctx, s, about)
	if err != nil || about.Depth > 0 {
		return t, about.Task, err
	}
	ok, err := p.mayRead(ctx, s, t)
	switch {
	case err == nil && !ok:
		err = errorf(wire.E43, "", "there is no %s for %s", ref, s.address)
	case err == nil && ref.Field == fieldAnswer && t.AgentID == "": // each of several is answered by itself
		t, err = p.workerSubtask(ctx, s, t)
	}
	return t, about.Task, err
}

// subtask is one that was handed off, with who handed it off.
type subtask struct {
	models.Task

	parent models.Task
}

// maxSearched is how many parts are looked through for those at a depth.
const maxSearched = 1000

// subtasksAt returns the parts of a task at a depth, the newest first: of maxLooked that there
// are at all.
func (p *Protocol) subtasksAt(ctx context.Context, root models.Task, depth int) (found []subtask, err error) {
	level, looked := []models.Task{root}, 0
	for len(level) > 0 && looked < maxSearched {
		var next []models.Task
		for _, t := range level {
			children, err := p.orchestrator.Subtasks(ctx, t.ID)
			if err != nil {
				return nil, err
			}
			for _, child := range children {
				switch {
				case child.Depth < depth:
					next = append(next, child)
				case child.Depth == depth:
					found = append(found, subtask{child, t})
				}
			}
			looked += len(children) + 1
		}
		level = next
	}
	slices.SortStableFunc(found, func(a, b subtask) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return found, nil
}

// worksOnSubtask reports whether an agent does a part, or did, or has handed it off.
func (p *Protocol) worksOnSubtask(ctx context.Context, agent string, sub subtask) (bool, error) {
	if agent == "" {
		return false, nil
	}
	for _, t := range []models.Task{sub.Task, sub.parent} {
		if t.AgentID == agent {
			return true, nil
		}
		attempts, err := p.orchestrator.Attempts(ctx, t.ID)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(attempts, func(a models.Attempt) bool { return a.AgentID == agent }) {
			return true, nil
		}
	}
	return false, nil
}

// depthError is the error of a hand-off from a task that an agent has not. Where it has that
// task at another depth, what is wrong is the DEPTH.
func (p *Protocol) depthError(ctx context.Context, s sender, m wire.Message, cause error) error {
	var r codedError
	if !asCodedError(cause, &r) || r.code != wire.E40 {
		return cause
	}
	t, err := p.namedTask(ctx, m)
	if err != nil {
		return cause
	}
	orders, err := p.orchestrator.OpenTasksOf(ctx, s.agentID)
	if err != nil {
		return err
	}
	out := cause
	for _, o := range orders {
		root, err := p.rootTask(ctx, o.Task)
		switch {
		case err != nil:
			return err
		case root.ID != t.ID:
			continue
		case o.Task.Depth+1 == m.Depth: // it is something else
			return cause
		}
		out = errorf(wire.E16, wire.ReasonDepth,
			"%s has %s at depth %d, so DEPTH of a hand-off must be %d, not %d", s.address, m.Task, o.Task.Depth, o.Task.Depth+1, m.Depth)
	}
	return out
}
