package selection

import (
	"fmt"
	"slices"
)

// Verify checks what no Select shows: wrong memberships, empty groups, lost positions, marks
// that were not reset. The index must not be in use.
func Verify(x *Index) error {
	t := x.table
	if n := (len(t.positions) + chunkSize - 1) / chunkSize; n != len(t.chunks) {
		return fmt.Errorf("%d positions in %d chunks", len(t.positions), len(t.chunks))
	}
	members := 0
	for k, g := range t.groups {
		if g.key != k || len(g.members) == 0 {
			return fmt.Errorf("the group %v is called %v and has %d members", k, g.key, len(g.members))
		}
		members += len(g.members)
	}
	for id, pos := range t.positions {
		s := t.record(pos).agent.Load()
		if t.record(pos).id != id || s.ID != id {
			return fmt.Errorf("the position of %q has %q and %q", id, t.record(pos).id, s.ID)
		}
		members -= len(s.memberships)
		for _, p := range s.memberships {
			if t.groups[p.group.key] != p.group || p.at >= len(p.group.members) || p.group.members[p.at] != pos {
				return fmt.Errorf("%q is not at index %d of %v", id, p.at, p.group.key)
			}
		}
	}
	if members != 0 {
		return fmt.Errorf("%d memberships have no agent", members)
	}
	if s, ok := x.scratches.Get().(*scratch); ok && slices.ContainsFunc(s.marks, func(m uint32) bool { return m != 0 }) {
		return fmt.Errorf("marks were not reset")
	}
	return nil
}
