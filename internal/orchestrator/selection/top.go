package selection

import "strings"

// row is an agent that was judged.
type row struct {
	Ranked

	step step
}

// top is the first MaxListed of the rows that it was offered, in order.
type top struct {
	rows []*row
}

// offer takes the row to its place, if it is among the first.
func (t *top) offer(r *row, rank Ranking) {
	at := len(t.rows)
	for at > 0 && before(r, t.rows[at-1], rank) {
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

func (t *top) forget() {
	clear(t.rows)
	t.rows = t.rows[:0]
}

// before reports whether a comes before b: who came further through the rules, then
// as ranked, then by id.
func before(a, b *row, rank Ranking) bool {
	if a.step != b.step {
		return a.step > b.step
	}
	if c := rank(&a.Ranked, &b.Ranked); c != 0 {
		return c < 0
	}
	return strings.Compare(a.AgentID, b.AgentID) < 0
}
