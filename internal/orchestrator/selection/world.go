package selection

import (
	"slices"

	"comet/models"
)

// world is the index itself. Whoever changes it holds both locks of the Index.
type world struct {
	// slots number the agents. Nobody is forgotten alone: agents are deactivated, and
	// Replace makes another world.
	slots  map[string]uint32
	chunks []*[chunkSize]record

	groups map[key]*group
	offers offers
}

// chunkSize is how many records lie side by side; a chunk never moves.
const chunkSize = 512

func newWorld(size int) *world {
	return &world{slots: make(map[string]uint32, size), groups: map[key]*group{}, offers: offers{}}
}

func (w *world) record(slot uint32) *record { return &w.chunks[slot/chunkSize][slot%chunkSize] }

// find returns the record of an agent, nil where it is not known.
func (w *world) find(id string) *record {
	slot, ok := w.slots[id]
	if !ok {
		return nil
	}
	return w.record(slot)
}

// put takes in an agent that is not known, or that has other capabilities, another
// type or sphere, or another activity than before.
func (w *world) put(a Agent) {
	slot, known := w.slots[a.ID]
	if known {
		w.unlink(slot)
	} else {
		slot = w.slot(a.ID)
	}
	a.Capabilities = slices.Clone(a.Capabilities)
	w.link(slot, &snapshot{Agent: a})
}

func (w *world) link(slot uint32, s *snapshot) {
	names := canonical(nil, s.Capabilities)
	s.places = make([]place, 0, len(names)+1)
	for _, name := range names {
		s.places = append(s.places, w.join(slot, key{name: name}))
		w.offers.add(&s.Agent, name, 1)
	}
	r := w.record(slot)
	r.id, r.group, r.sphere = s.ID, nil, int32(s.Sphere)
	if s.Type != "" {
		p := w.join(slot, key{byType: true, name: s.Type})
		s.places = append(s.places, p)
		r.group = p.group
	}
	r.show(s)
}

func (w *world) unlink(slot uint32) {
	s := w.record(slot).agent.Load()
	for _, p := range s.places {
		if !p.group.key.byType {
			w.offers.add(&s.Agent, p.group.key.name, -1)
		}
		w.leave(p)
	}
}

// slot gives an agent the next one.
func (w *world) slot(id string) uint32 {
	s := uint32(len(w.slots))
	if s%chunkSize == 0 {
		w.chunks = append(w.chunks, new([chunkSize]record))
	}
	w.slots[id] = s
	return s
}

// samePlaces reports whether nothing changed of what the world is ordered by.
func samePlaces(a, b *Agent) bool {
	return a.Type == b.Type && a.Sphere == b.Sphere && a.Active == b.Active && slices.Equal(a.Capabilities, b.Capabilities)
}

// canonical appends the names to into as they are compared, sorted, each once.
func canonical(into, names []string) []string {
	for _, name := range names {
		into = append(into, models.CapabilityKey(name))
	}
	slices.Sort(into)
	return slices.Compact(into)
}
