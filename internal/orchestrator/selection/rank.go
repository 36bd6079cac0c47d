package selection

import (
	"cmp"
	"math"
	"time"
)

// Ranking orders two agents that match: negative where a is to be taken before b.
// Two that it finds equal are ordered by id. It keeps neither pointer, and is called
// with no lock held.
type Ranking func(a, b *Ranked) int

// Ranked is an agent as a Ranking sees it, and as the decision keeps it.
type Ranked struct {
	AgentID string `json:"agent_id"`
	// Score is the part of the required capabilities that the agent has, 0-1; 1
	// where none is required.
	Score float64 `json:"score"`
	// Load is in percent, 0-100: Agent.EffectiveLoad.
	Load int `json:"load"`
	// LastAssignedAt is left out for an agent that was never used.
	LastAssignedAt time.Time `json:"last_used,omitzero"`
}

// ByScore takes the highest score, then the lowest load, then who was not used for
// the longest time (PROTOCOL_V5 §5.1).
func ByScore(a, b *Ranked) int {
	switch {
	case a.Score != b.Score:
		return cmp.Compare(b.Score, a.Score)
	case a.Load != b.Load:
		return a.Load - b.Load
	}
	return a.LastAssignedAt.Compare(b.LastAssignedAt)
}

// ByWeight takes the highest Weight, then goes on as ByScore (Genesis §Routing
// Algorithm).
func ByWeight(a, b *Ranked) int {
	if c := cmp.Compare(b.weight(), a.weight()); c != 0 {
		return c
	}
	return ByScore(a, b)
}

// Weight is Genesis's calculateScore, 0-1: half the similarity, 0.3 for being
// available, which every candidate is, and 0.2 for having no load.
func (r *Ranked) Weight() float64 { return r.weight() / 1e9 }

// weight is in whole billionths, so that sums that are equal on paper are equal here,
// and the rest of the order decides between them instead of the last bit.
func (r *Ranked) weight() float64 {
	return math.RoundToEven((0.5*r.Score + 0.3 + 0.2*(1-float64(r.Load)/100)) * 1e9)
}
