package selection

import "strings"

// judged is an agent that was judged.
type judged struct {
	Ranked

	stage stage
}

// topList is the first MaxListed of the rows that it was offered, in order.
type topList struct {
	rows []*judged
}

// insert takes the row to its place, if it is among the first.
func (t *topList) insert(r *judged, rank Ranking) {
	at := len(t.rows)
	for at > 0 && ranksBefore(r, t.rows[at-1], rank) {
		at--
	}
	if at == MaxListed {
		return
	}
	if len(t.rows) < MaxListed {
		t.rows = append(t.rows, nil)
	}
	copy(t.rows[at+1:], t.rows[at:])
	t.rows[at] = r
}

func (t *topList) clear() {
	clear(t.rows)
	t.rows = t.rows[:0]
}

// ranksBefore reports whether a comes before b: who came further through the rules, then
// as ranked, then by id.
func ranksBefore(a, b *judged, rank Ranking) bool {
	if a.stage != b.stage {
		return a.stage > b.stage
	}
	if c := rank(&a.Ranked, &b.Ranked); c != 0 {
		return c < 0
	}
	return strings.Compare(a.AgentID, b.AgentID) < 0
}
