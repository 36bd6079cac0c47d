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

// meant is the task that a Q is about: at DEPTH 0 the one that it names, deeper a part of
// that. A part that is none of the speaker's is E40.
func (d *Protocol) meant(ctx context.Context, s speaker, m wire.Message) (models.Task, error) {
	t, err := d.named(ctx, m)
	if err != nil || m.Depth == 0 {
		return t, err
	}
	parts, err := d.partsAt(ctx, t, m.Depth)
	if err != nil {
		return t, err
	}
	for _, p := range parts {
		if mine, err := d.takesPart(ctx, s.agent, p); err != nil || mine {
			return p.Task, err
		}
	}
	if len(parts) > 0 && s.owns(t) {
		return parts[0].Task, nil
	}
	return t, refuse(wire.E40, "", "%s has no part of %s in %s at depth %d", s.address, m.Task, m.Context, m.Depth)
}

// source returns the task whose field, or whose session's, a Q with ref= reads, and the
// name by which the reference calls it. Another task than the Q is about is that at DEPTH 0.
func (d *Protocol) source(ctx context.Context, s speaker, m wire.Message, ref wire.Ref) (models.Task, wire.Task, error) {
	about := m
	if about.Task = cmp.Or(ref.Task, m.Task); ref.Kind != wire.RefTask {
		about.Depth = 0 // all of a task is in one session
	}
	if tid, ok := m.Task.Number(); ok && tid > 0 && about.Task != m.Task {
		about.Depth = 0
	}
	t, err := d.meant(ctx, s, about)
	if err != nil || about.Depth > 0 {
		return t, about.Task, err
	}
	ok, err := d.mayRead(ctx, s, t)
	switch {
	case err == nil && !ok:
		err = refuse(wire.E43, "", "there is no %s for %s", ref, s.address)
	case err == nil && ref.Field == fieldAnswer && t.AgentID == "": // each of several is answered by itself
		t, err = d.share(ctx, s, t)
	}
	return t, about.Task, err
}

// part is one that was handed off, with who handed it off.
type part struct {
	models.Task

	source models.Task
}

// maxLooked is how many parts are looked through for those at a depth.
const maxLooked = 1000

// partsAt returns the parts of a task at a depth, the newest first: of maxLooked that there
// are at all.
func (d *Protocol) partsAt(ctx context.Context, root models.Task, depth int) (found []part, err error) {
	level, looked := []models.Task{root}, 0
	for len(level) > 0 && looked < maxLooked {
		var next []models.Task
		for _, t := range level {
			children, err := d.work.Parts(ctx, t.ID)
			if err != nil {
				return nil, err
			}
			for _, child := range children {
				switch {
				case child.Depth < depth:
					next = append(next, child)
				case child.Depth == depth:
					found = append(found, part{child, t})
				}
			}
			looked += len(children) + 1
		}
		level = next
	}
	slices.SortStableFunc(found, func(a, b part) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.ID, a.ID))
	})
	return found, nil
}

// takesPart reports whether an agent does a part, or did, or has handed it off.
func (d *Protocol) takesPart(ctx context.Context, agent string, p part) (bool, error) {
	if agent == "" {
		return false, nil
	}
	for _, t := range []models.Task{p.Task, p.source} {
		if t.AgentID == agent {
			return true, nil
		}
		attempts, err := d.work.Attempts(ctx, t.ID)
		if err != nil {
			return false, err
		}
		if slices.ContainsFunc(attempts, func(a models.Attempt) bool { return a.AgentID == agent }) {
			return true, nil
		}
	}
	return false, nil
}

// atDepth is the error of a hand-off from a task that an agent has not. Where it has that
// task at another depth, what is wrong is the DEPTH.
func (d *Protocol) atDepth(ctx context.Context, s speaker, m wire.Message, cause error) error {
	var r refusal
	if !asRefusal(cause, &r) || r.code != wire.E40 {
		return cause
	}
	t, err := d.named(ctx, m)
	if err != nil {
		return cause
	}
	orders, err := d.work.OpenTasksOf(ctx, s.agent)
	if err != nil {
		return err
	}
	out := cause
	for _, o := range orders {
		root, err := d.root(ctx, o.Task)
		switch {
		case err != nil:
			return err
		case root.ID != t.ID:
			continue
		case o.Task.Depth+1 == m.Depth: // it is something else
			return cause
		}
		out = refuse(wire.E16, wire.ReasonDepth,
			"%s has %s at depth %d, so DEPTH of a hand-off must be %d, not %d", s.address, m.Task, o.Task.Depth, o.Task.Depth+1, m.Depth)
	}
	return out
}
