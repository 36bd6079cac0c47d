package selection

import (
	"slices"
	"time"
)

// Select returns the agents that may get a task. Its time grows with the number of agents that
// have one of the required capabilities, and with the length of Exclude.
func (x *Index) Select(r Request) Decision {
	if r.Rank == nil {
		r.Rank = ByScore
	}
	if !(r.Threshold > 0) {
		r.Threshold = DefaultThreshold
	}
	s := x.takeScratch()
	defer x.releaseScratch(s)
	s.names = canonical(s.names, r.Capabilities)
	x.mu.RLock()
	s.collect(x.table, &r)
	x.mu.RUnlock()
	return s.decide(&r)
}

// decide checks and ranks all matches.
func (s *scratch) decide(r *Request) Decision {
	var ended [stageCount]int
	s.rows = slices.Grow(s.rows, len(s.matches))[:len(s.matches)]
	for i := range s.matches {
		f, row := &s.matches[i], &s.rows[i]
		row.Ranked = f.ranked(len(s.names))
		row.stage = r.check(f, row.Score)
		ended[row.stage]++
		if row.stage == stageEligible {
			s.best.insert(row, r.Rank)
		} else {
			s.rejected.insert(row, r.Rank)
		}
	}
	d := Decision{
		Verdict: verdict(&ended), Considered: len(s.matches), Eligible: ended[stageEligible],
		Candidates: make([]Ranked, len(s.best.rows)), Rejected: make([]Rejection, len(s.rejected.rows)),
	}
	for i, row := range s.best.rows {
		d.Candidates[i] = row.Ranked
	}
	for i, row := range s.rejected.rows {
		d.Rejected[i] = Rejection{row.Ranked, row.stage.reason()}
	}
	return d
}

// scratch is the memory of a Select, which later ones reuse.
type scratch struct {
	names   []string // required, canonical
	matches []match
	// several are the positions found so far, and marks holds, by position, how many of several
	// required capabilities the agent has. Between Selects all marks are 0.
	several []uint32
	marks   []uint32

	rows     []judged // one for each match
	best     topList
	rejected topList
}

// match is a copy of an agent that has at least one required capability.
type match struct {
	id           string
	lastAssigned int64
	sphere       int32
	live         liveState
	matched      uint32 // how many of the required capabilities it has
	typeFits     bool
}

// ranked returns the match as a Ranking compares it.
func (f *match) ranked(required int) Ranked {
	r := Ranked{AgentID: f.id, Score: 1, Load: f.live.load(), LastAssignedAt: time.UnixMicro(f.lastAssigned).UTC()}
	if required > 0 {
		r.Score = float64(f.matched) / float64(required)
	}
	return r
}

// collect finds the agents with any of the capabilities or, if none is required, the named ones.
// The caller holds mu.
func (s *scratch) collect(t *agentTable, r *Request) {
	// nil for no type, and for a type without agents.
	wanted := t.groups[key{byType: true, name: r.AgentType}]
	take := func(pos, matched uint32) {
		rec := t.record(pos)
		s.matches = append(s.matches, match{
			id: rec.id, lastAssigned: rec.lastAssigned.Load(), sphere: rec.sphere, live: liveState(rec.live.Load()),
			matched: matched, typeFits: r.AgentType == "" || wanted != nil && rec.group == wanted,
		})
	}
	switch {
	case len(s.names) == 1:
		eachMember(t.groups[key{name: s.names[0]}], 1, take)
	case len(s.names) > 1:
		s.count(t)
		for _, pos := range s.several {
			take(pos, s.marks[pos])
			s.marks[pos] = 0
		}
	case r.AgentID != "":
		if pos, ok := t.positions[r.AgentID]; ok {
			take(pos, 0)
		}
	case r.AgentType != "":
		eachMember(wanted, 0, take)
	}
}

// eachMember calls take for the members of a group, which may be nil.
func eachMember(g *group, matched uint32, take func(pos, matched uint32)) {
	if g == nil {
		return
	}
	for _, pos := range g.members {
		take(pos, matched)
	}
}

// count marks how many of the capabilities each agent has.
func (s *scratch) count(t *agentTable) {
	if n := len(t.positions); len(s.marks) < n {
		s.marks = make([]uint32, n+n/4)
	}
	for _, name := range s.names {
		g := t.groups[key{name: name}]
		if g == nil {
			continue
		}
		for _, pos := range g.members {
			if s.marks[pos] == 0 {
				s.several = append(s.several, pos)
			}
			s.marks[pos]++
		}
	}
}

func (x *Index) takeScratch() *scratch {
	if s, ok := x.scratches.Get().(*scratch); ok {
		return s
	}
	return &scratch{}
}

// releaseScratch clears the scratch and returns it to the pool.
func (x *Index) releaseScratch(s *scratch) {
	clear(s.names)
	clear(s.matches)
	clear(s.rows)
	s.names, s.matches, s.rows, s.several = s.names[:0], s.matches[:0], s.rows[:0], s.several[:0]
	s.best.clear()
	s.rejected.clear()
	x.scratches.Put(s)
}
