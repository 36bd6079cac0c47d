package selection

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// foldedNames is the type under which the index holds agents by folded capabilities; no agent has it.
const foldedNames = "\x00"

// foldedSimilarity is the similarity of names that are equal only when folded.
const foldedSimilarity = 0.9

// fold returns a name in lower case with "_" in place of "-".
func fold(name string) string { return strings.ReplaceAll(strings.ToLower(name), "-", "_") }

// Weight is the score of Genesis §Routing Algorithm: 0.5 for the similarity, 0.3 for an available
// agent and 0.2 for one without load, rounded to four decimals.
func (r *Ranked) Weight() float64 {
	available := 0.0
	if r.Reason == "" {
		available = 1
	}
	return math.Round(1e4*(0.5*r.Score+0.3*available+0.2*(1-float64(r.Load)/100))) / 1e4
}

// ByWeight prefers the highest weight, then orders as ByScore.
func ByWeight(a, b *Ranked) int {
	return cmp.Or(cmp.Compare(b.Weight(), a.Weight()), ByScore(a, b))
}

// The numbers of agents in a Routing.
const (
	maxSelected     = 3
	maxAlternatives = 2
)

// Routing is a weighted decision in the form of Genesis §Routing Algorithm. A task is assigned to the
// first selected agent; retries prefer the other ones in this order, as long as their load does not change.
type Routing struct {
	Selected     []Routed `json:"selected"`                               // The best three agents, best first.
	Alternatives []Routed `json:"alternatives"`                           // The next two agents.
	Reason       string   `json:"reason" example:"Best match for intent"` // Why they were selected.
	Confidence   float64  `json:"confidence" example:"0.95"`              // Score of the best agent; 0 without one.
	Similarity   float64  `json:"similarity" example:"1"`                 // Similarity of the best agent; 0 without one.
} // @name TaskRouting

// Routed is an agent that was considered for a task, with its score.
type Routed struct {
	AgentID    string  `json:"agent_id" example:"research-web-01"` // The agent's id.
	Score      float64 `json:"score" example:"0.95"`               // 0.5 × similarity + 0.3 × availability + 0.2 × (1 − load).
	Similarity float64 `json:"similarity" example:"1"`             // 1 for the name of a capability, 0.9 for the same name with other case or `-` for `_`.
} // @name RoutedAgent

// Routing returns the routing of a weighted decision, nil for another one.
func (d *Decision) Routing() *Routing {
	if !d.Weighted {
		return nil
	}
	out := Routing{Selected: []Routed{}, Alternatives: []Routed{}, Reason: "Best match for intent"}
	for i, c := range d.Candidates[:min(len(d.Candidates), maxSelected+maxAlternatives)] {
		to := &out.Selected
		if i >= maxSelected {
			to = &out.Alternatives
		}
		*to = append(*to, Routed{c.AgentID, c.Weight(), c.Score})
	}
	if len(out.Selected) > 0 {
		out.Confidence, out.Similarity = out.Selected[0].Score, out.Selected[0].Similarity
	}
	return &out
}

// judgeFolded checks the agents that have any of the required capabilities, under the same name or one
// that is equal when folded.
func (x *Index) judgeFolded(r *Request, names []string) (rows []judged) {
	folds := foldAll(names)
	for i, name := range folds {
		for _, k := range [...]key{{capability: name}, {foldedNames, name}} {
			rows = slices.Grow(rows, len(x.groups[k]))
			for _, e := range x.groups[k] {
				if e.similarity(names[:i], folds[:i]) > 0 || k.agentType == foldedNames && slices.Contains(e.names, name) {
					continue // it was found before
				}
				rows = append(rows, r.judge(&e.Agent, e.similarity(names, folds)/float64(len(names))))
			}
		}
	}
	return rows
}

// similarity returns the sum of the similarities of the capabilities.
func (e *entry) similarity(names, folds []string) (sum float64) {
	for i, name := range names {
		switch {
		case slices.Contains(e.names, name):
			sum++
		case slices.Contains(e.names, folds[i]) || slices.Contains(e.folds, folds[i]):
			sum += foldedSimilarity
		}
	}
	return sum
}

// foldAll returns the folded names.
func foldAll(names []string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = fold(name)
	}
	return out
}
