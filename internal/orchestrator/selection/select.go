package selection

import "slices"

// Select decides who may take a piece of work. Its time grows with the number of
// agents that have one of the required capabilities, and of ids to exclude.
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

// decide judges everybody who was found.
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
