package selection

import "time"

// scratch is the memory of one Select, used again by later ones.
type scratch struct {
	names   []string // required, canonical
	matches []match
	// several are the slots found so far, and marks, by slot, how many of several
	// required capabilities the agent has. Between Selects all marks are 0.
	several []uint32
	marks   []uint32

	rows     []judged // one for each found
	best     topList
	rejected topList
}

// match is an agent that matches, as it was at that moment.
type match struct {
	id           string
	lastAssigned int64
	sphere       int32
	live         liveState
	matched      uint32 // how many of the required capabilities it has
	typeFits     bool
}

// ranked is what a Ranking sees of it.
func (f *match) ranked(required int) Ranked {
	r := Ranked{AgentID: f.id, Score: 1, Load: f.live.load(), LastAssignedAt: time.UnixMicro(f.lastAssigned).UTC()}
	if required > 0 {
		r.Score = float64(f.matched) / float64(required)
	}
	return r
}

// collect finds who has any of the capabilities or, where none is required, who is
// named. The caller holds mu.
func (s *scratch) collect(w *agentTable, r *Request) {
	// A type that nobody has is no group, and neither is having no type.
	wanted := w.groups[key{byType: true, name: r.AgentType}]
	take := func(slot, matched uint32) {
		rec := w.record(slot)
		s.matches = append(s.matches, match{
			id: rec.id, lastAssigned: rec.lastAssigned.Load(), sphere: rec.sphere, live: liveState(rec.live.Load()),
			matched: matched, typeFits: r.AgentType == "" || wanted != nil && rec.group == wanted,
		})
	}
	switch {
	case len(s.names) == 1:
		eachMember(w.groups[key{name: s.names[0]}], 1, take)
	case len(s.names) > 1:
		s.count(w)
		for _, slot := range s.several {
			take(slot, s.marks[slot])
			s.marks[slot] = 0
		}
	case r.AgentID != "":
		if slot, ok := w.positions[r.AgentID]; ok {
			take(slot, 0)
		}
	case r.AgentType != "":
		eachMember(wanted, 0, take)
	}
}

// eachMember takes the members of a group, which may be nil.
func eachMember(g *group, matched uint32, take func(slot, matched uint32)) {
	if g == nil {
		return
	}
	for _, slot := range g.members {
		take(slot, matched)
	}
}

// count marks who has how many of the capabilities.
func (s *scratch) count(w *agentTable) {
	if n := len(w.positions); len(s.marks) < n {
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

func (x *Index) takeScratch() *scratch {
	if s, ok := x.scratches.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

// releaseScratch keeps the memory and lets go of the names.
func (x *Index) releaseScratch(s *scratch) {
	clear(s.names)
	clear(s.matches)
	clear(s.rows)
	s.names, s.matches, s.rows, s.several = s.names[:0], s.matches[:0], s.rows[:0], s.several[:0]
	s.best.clear()
	s.rejected.clear()
	x.scratches.Put(s)
}
