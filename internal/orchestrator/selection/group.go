package selection

// key names a group: the holders of a capability, or the agents of a type.
type key struct {
	byType bool
	name   string
}

// group has the slots of its members, in no order.
type group struct {
	key     key
	members []uint32
}

// membership is where in a group an agent stands, so that it leaves without a search.
type membership struct {
	group *group
	at    int
}

// addMember adds a slot to a group.
func (w *agentTable) addMember(slot uint32, k key) membership {
	g := w.groups[k]
	if g == nil {
		g = &group{key: k}
		w.groups[k] = g
	}
	g.members = append(g.members, slot)
	return membership{g, len(g.members) - 1}
}

// removeMember puts the group's last member in the place that becomes free.
func (w *agentTable) removeMember(p membership) {
	g, last := p.group, len(p.group.members)-1
	moved := g.members[last]
	g.members[p.at] = moved
	g.members = g.members[:last]
	places := w.record(moved).agent.Load().memberships
	for i := range places {
		if places[i].group == g {
			places[i].at = p.at
		}
	}
	if last == 0 {
		delete(w.groups, g.key)
	}
}
