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
	s := x.scratch()
	defer x.release(s)
	s.names = canonical(s.names, r.Capabilities)
	x.mu.RLock()
	s.collect(x.world, &r)
	x.mu.RUnlock()
	return s.decide(&r)
}

// decide judges everybody who was found.
func (s *scratch) decide(r *Request) Decision {
	var ended [steps]int
	s.rows = slices.Grow(s.rows, len(s.found))[:len(s.found)]
	for i := range s.found {
		f, row := &s.found[i], &s.rows[i]
		row.Ranked = f.ranked(len(s.names))
		row.step = r.judge(f, row.Score)
		ended[row.step]++
		if row.step == eligible {
			s.best.offer(row, r.Rank)
		} else {
			s.rejected.offer(row, r.Rank)
		}
	}
	d := Decision{
		Verdict: verdict(&ended), Considered: len(s.found), Eligible: ended[eligible],
		Candidates: make([]Ranked, len(s.best.rows)), Rejected: make([]Rejection, len(s.rejected.rows)),
	}
	for i, row := range s.best.rows {
		d.Candidates[i] = row.Ranked
	}
	for i, row := range s.rejected.rows {
		d.Rejected[i] = Rejection{row.Ranked, row.step.reason()}
	}
	return d
}
