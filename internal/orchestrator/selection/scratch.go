package selection

import "time"

// scratch is the memory of one Select, used again by later ones.
type scratch struct {
	names []string // required, canonical
	found []found
	// several are the slots found so far, and marks, by slot, how many of several
	// required capabilities the agent has. Between Selects all marks are 0.
	several []uint32
	marks   []uint32

	rows     []row // one for each found
	best     top
	rejected top
}

// found is an agent that matches, as it was at that moment.
type found struct {
	id       string
	used     int64
	sphere   int32
	live     live
	matched  uint32 // how many of the required capabilities it has
	typeFits bool
}

// ranked is what a Ranking sees of it.
func (f *found) ranked(required int) Ranked {
	r := Ranked{AgentID: f.id, Score: 1, Load: f.live.load(), LastUsed: time.UnixMicro(f.used).UTC()}
	if required > 0 {
		r.Score = float64(f.matched) / float64(required)
	}
	return r
}

// collect finds who has any of the capabilities or, where none is required, who is
// named. The caller holds mu.
func (s *scratch) collect(w *world, r *Request) {
	// A type that nobody has is no group, and neither is having no type.
	wanted := w.groups[key{byType: true, name: r.Type}]
	take := func(slot, matched uint32) {
		rec := w.record(slot)
		s.found = append(s.found, found{
			id: rec.id, used: rec.used.Load(), sphere: rec.sphere, live: live(rec.live.Load()),
			matched: matched, typeFits: r.Type == "" || wanted != nil && rec.group == wanted,
		})
	}
	switch {
	case len(s.names) == 1:
		takeAll(w.groups[key{name: s.names[0]}], 1, take)
	case len(s.names) > 1:
		s.count(w)
		for _, slot := range s.several {
			take(slot, s.marks[slot])
			s.marks[slot] = 0
		}
	case r.Agent != "":
		if slot, ok := w.slots[r.Agent]; ok {
			take(slot, 0)
		}
	case r.Type != "":
		takeAll(wanted, 0, take)
	}
}

// takeAll takes the members of a group, which may be nil.
func takeAll(g *group, matched uint32, take func(slot, matched uint32)) {
	if g == nil {
		return
	}
	for _, slot := range g.members {
		take(slot, matched)
	}
}

// count marks who has how many of the capabilities.
func (s *scratch) count(w *world) {
	if n := len(w.slots); len(s.marks) < n {
		s.marks = make([]uint32, n+n/4)
	}
	for _, name := range s.names {
		g := w.groups[key{name: name}]
		if g == nil {
			continue
		}
		for _, slot := range g.members {
			if s.marks[slot] == 0 {
				s.several = append(s.several, slot)
			}
			s.marks[slot]++
		}
	}
}

func (x *Index) scratch() *scratch {
	if s, ok := x.scratches.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

// release keeps the memory and lets go of the names.
func (x *Index) release(s *scratch) {
	clear(s.names)
	clear(s.found)
	clear(s.rows)
	s.names, s.found, s.rows, s.several = s.names[:0], s.found[:0], s.rows[:0], s.several[:0]
	s.best.forget()
	s.rejected.forget()
	x.scratches.Put(s)
}
