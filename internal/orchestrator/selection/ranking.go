package selection

import (
	"cmp"
	"strings"
	"time"
)

// Ranking orders two eligible agents: negative if a is better than b. Equal ones are ordered by
// id. It must not keep the pointers, and is called without locks.
type Ranking func(a, b *Ranked) int

// Ranked is an agent as a Ranking compares it, and as the decision stores it.
type Ranked struct {
	AgentID string `json:"agent_id"`
	// Score is the share of the required capabilities that the agent has, 0-1; 1 if none is
	// required.
	Score float64 `json:"score"`
	// Load is Agent.EffectiveLoad in percent, 0-100.
	Load int `json:"load"`
	// LastAssignedAt is omitted for an agent that never had a task.
	LastAssignedAt time.Time `json:"last_used,omitzero"`
}

// ByScore prefers the highest score, then the lowest load, then the least recently used agent
// (PROTOCOL_V5 §5.1).
func ByScore(a, b *Ranked) int {
	switch {
	case a.Score != b.Score:
		return cmp.Compare(b.Score, a.Score)
	case a.Load != b.Load:
		return a.Load - b.Load
	}
	return a.LastAssignedAt.Compare(b.LastAssignedAt)
}

// judged is an agent with the result of its checks.
type judged struct {
	Ranked

	stage stage
}

// MaxListed is the maximum number of candidates, and of rejected agents, in a decision.
const MaxListed = 10

// topList holds the first MaxListed of the rows inserted, in order.
type topList struct {
	rows []*judged
}

// insert adds the row at its position, if it is among the first.
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

// ranksBefore reports whether a comes before b: by checks passed, then as ranked, then by id.
func ranksBefore(a, b *judged, rank Ranking) bool {
	if a.stage != b.stage {
		return a.stage > b.stage
	}
	if c := rank(&a.Ranked, &b.Ranked); c != 0 {
		return c < 0
	}
	return strings.Compare(a.AgentID, b.AgentID) < 0
}
