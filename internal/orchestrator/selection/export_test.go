package selection

import (
	"fmt"
	"slices"
)

// Verify finds errors that no Select shows: wrong memberships, empty groups and wrong counts. The
// index must not be in use.
func Verify(x *Index) error {
	members, offers := 0, map[key]int{}
	for k, g := range x.groups {
		if len(g) == 0 {
			return fmt.Errorf("the group %v is empty", k)
		}
		members += len(g)
	}
	for id, e := range x.agents {
		if e.ID != id {
			return fmt.Errorf("the entry of %q has %q", id, e.ID)
		}
		for _, k := range e.keys() {
			if !slices.Contains(x.groups[k], e) {
				return fmt.Errorf("%q is not in %v", id, k)
			}
			members--
			if !e.Active || k.capability == "" || k.agentType == foldedNames {
				continue
			}
			if offers[k]++; e.Type != "" {
				offers[key{e.Type, k.capability}]++
			}
		}
	}
	if members != 0 {
		return fmt.Errorf("%d memberships have no agent", members)
	}
	for k, n := range offers {
		if x.offers[k] != n {
			return fmt.Errorf("%d agents offer %v, not %d", n, k, x.offers[k])
		}
	}
	if len(offers) != len(x.offers) {
		return fmt.Errorf("%d offers are counted, not %d", len(x.offers), len(offers))
	}
	return nil
}
