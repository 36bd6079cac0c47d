package selection

import (
	"slices"

	"comet/models"
)

// agentTable is the index itself. Whoever changes it holds both locks of the Index.
type agentTable struct {
	// positions number the agents. Nobody is forgotten alone: agents are deactivated, and
	// Replace makes another world.
	positions map[string]uint32
	chunks    []*[chunkSize]record

	groups map[key]*group
	offers offerCounts
}

// chunkSize is how many records lie side by side; a chunk never moves.
const chunkSize = 512

func newAgentTable(size int) *agentTable {
	return &agentTable{positions: make(map[string]uint32, size), groups: map[key]*group{}, offers: offerCounts{}}
}

func (w *agentTable) record(slot uint32) *record { return &w.chunks[slot/chunkSize][slot%chunkSize] }

// find returns the record of an agent, nil where it is not known.
func (w *agentTable) find(id string) *record {
	slot, ok := w.positions[id]
	if !ok {
		return nil
	}
	return w.record(slot)
}

// put takes in an agent that is not known, or that has other capabilities, another
// type or sphere, or another activity than before.
func (w *agentTable) put(a Agent) {
	slot, known := w.positions[a.ID]
	if known {
		w.unlink(slot)
	} else {
		slot = w.addPosition(a.ID)
	}
	a.Capabilities = slices.Clone(a.Capabilities)
	w.link(slot, &snapshot{Agent: a})
}

func (w *agentTable) link(slot uint32, s *snapshot) {
	names := canonical(nil, s.Capabilities)
	s.memberships = make([]membership, 0, len(names)+1)
	for _, name := range names {
		s.memberships = append(s.memberships, w.addMember(slot, key{name: name}))
		w.offers.add(&s.Agent, name, 1)
	}
	r := w.record(slot)
	r.id, r.group, r.sphere = s.ID, nil, int32(s.SphereID)
	if s.Type != "" {
		p := w.addMember(slot, key{byType: true, name: s.Type})
		s.memberships = append(s.memberships, p)
		r.group = p.group
	}
	r.publish(s)
}

func (w *agentTable) unlink(slot uint32) {
	s := w.record(slot).agent.Load()
	for _, p := range s.memberships {
		if !p.group.key.byType {
			w.offers.add(&s.Agent, p.group.key.name, -1)
		}
		w.removeMember(p)
	}
}

// addPosition gives an agent the next one.
func (w *agentTable) addPosition(id string) uint32 {
	s := uint32(len(w.positions))
	if s%chunkSize == 0 {
		w.chunks = append(w.chunks, new([chunkSize]record))
	}
	w.positions[id] = s
	return s
}

// sameMemberships reports whether nothing changed of what the world is ordered by.
func sameMemberships(a, b *Agent) bool {
	return a.Type == b.Type && a.SphereID == b.SphereID && a.Active == b.Active && slices.Equal(a.Capabilities, b.Capabilities)
}

// canonical appends the names to into as they are compared, sorted, each once.
func canonical(into, names []string) []string {
	for _, name := range names {
		into = append(into, models.CapabilityKey(name))
	}
	slices.Sort(into)
	return slices.Compact(into)
}
