package selection

import (
	"fmt"
	"slices"
)

// Verify looks for what no Select shows: places that are wrong, groups that nobody is
// in, slots that are lost, marks that stayed. The index must not be in use.
func Verify(x *Index) error {
	w := x.table
	if n := (len(w.positions) + chunkSize - 1) / chunkSize; n != len(w.chunks) {
		return fmt.Errorf("%d slots in %d chunks", len(w.positions), len(w.chunks))
	}
	members := 0
	for k, g := range w.groups {
		if g.key != k || len(g.members) == 0 {
			return fmt.Errorf("the group %v is called %v and has %d members", k, g.key, len(g.members))
		}
		members += len(g.members)
	}
	for id, slot := range w.positions {
		s := w.record(slot).agent.Load()
		if w.record(slot).id != id || s.ID != id {
			return fmt.Errorf("the slot of %q has %q and %q", id, w.record(slot).id, s.ID)
		}
		members -= len(s.memberships)
		for _, p := range s.memberships {
			if w.groups[p.group.key] != p.group || p.at >= len(p.group.members) || p.group.members[p.at] != slot {
				return fmt.Errorf("%q is not in its place %d of %v", id, p.at, p.group.key)
			}
		}
	}
	if members != 0 {
		return fmt.Errorf("%d places of groups are nobody's", members)
	}
	if s, ok := x.scratches.Get().(*scratch); ok && slices.ContainsFunc(s.marks, func(m uint32) bool { return m != 0 }) {
		return fmt.Errorf("marks stayed")
	}
	return nil
}
