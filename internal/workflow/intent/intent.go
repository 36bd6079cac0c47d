// Package intent proposes the plan of a workflow from a sentence in English or French. It finds the
// tools by search and by the usage graph, and takes arguments only from what the sentence and its context
// state; what is not stated is reported as missing. It has no I/O, no clock and no model
// (docs/adr/0051-a-sentence-becomes-a-plan-without-a-model.md).
package intent

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"comet/internal/errs"
	"comet/internal/workflow/plan"
	"comet/models"
)

// Limits of a sentence.
const (
	MaxSentence = 8000 // bytes
	MaxSteps    = 20
)

// Confidence that a verdict needs.
const (
	suggestionConfidence = 0.50
	executeConfidence    = 0.70
)

// Ranking of the tools of a step.
const (
	scoreShare, rankShare = 0.8, 0.2
	keptTools             = 5
	// closeRank is the share of the best rank from which a tool can replace the best one because
	// the arguments fit it better, and from which a tool of another server makes a step ambiguous.
	closeRank = 0.85
	// maxWords is the number of words of a clause that every search takes into account.
	maxWords = 60
	// unknownWord is the least factor by which a word that the tool does not have lowers its score.
	unknownWord = 1.05
)

// Request is a sentence with the knowledge about tools.
type Request struct {
	Sentence string
	// Context is nil or a JSON object whose members are values of properties of the same name.
	Context json.RawMessage
	// Find returns at least the ten best tools for a text that says what one step does.
	Find func(text string) []Tool
	// Hops returns the length of the shortest path between two tools in the usage graph, 0 for none.
	Hops func(from, to string) int
	// Density is the density of the usage graph, in 0…1.
	Density float64
	// Taken reports whether the workflow already has a step with an id; nil for a new workflow.
	Taken func(id string) bool

	ids []string // of the steps
}

// Verdict tells how a proposal can be used.
type Verdict string

// Values of Verdict.
const (
	// Execute is a proposal that can start: it is confident, complete and valid. Steps with Approve
	// still need approval.
	Execute Verdict = "execute"
	// Suggestion is a proposal that the caller has to complete or confirm.
	Suggestion Verdict = "suggestion"
	// ExplicitRequired is a proposal with a low confidence or without steps: the caller has to give the steps.
	ExplicitRequired Verdict = "explicit_required"
)

// Proposal is the plan for a sentence.
type Proposal struct {
	Verdict Verdict `json:"verdict"`
	// Confidence is that of the weakest step, in 0…1.
	Confidence float64     `json:"confidence"`
	Steps      []plan.Step `json:"steps"`
	// Missing are the required arguments that are not stated.
	Missing []Missing `json:"missing"`
	// Unclear are the parts of the sentence that the steps do not express.
	Unclear []string `json:"unclear"`
	// Alternatives are the other tools that were considered.
	Alternatives []Alternative `json:"alternatives"`
}

// Missing is a required argument without a value.
type Missing struct {
	Step        string          `json:"step" example:"t1"`                                // The task's id in the plan.
	Argument    string          `json:"argument" example:"/path"`                         // The argument, a JSON pointer into the arguments.
	Description string          `json:"description,omitempty" example:"Path of the file"` // The description of the argument.
	Schema      json.RawMessage `json:"schema,omitempty" swaggertype:"object"`            // The JSON schema of the argument.
} // @name WorkflowMissingArgument

// Alternative is another tool for a step.
type Alternative struct {
	Step  string  `json:"step" example:"t1"`                        // The task's id in the plan.
	Tool  string  `json:"tool" example:"filesystem:read_text_file"` // The id of the tool.
	Score float64 `json:"score" example:"0.71"`                     // How well it fits, 0 to 1.
} // @name WorkflowAlternative

// Propose returns the plan for a sentence. The error is errs.InvalidRequest for an empty or too long
// sentence, or a context that is not an object.
func Propose(r Request) (Proposal, error) {
	out := Proposal{Verdict: ExplicitRequired, Steps: []plan.Step{}, Missing: []Missing{}, Unclear: []string{}, Alternatives: []Alternative{}}
	var context map[string]json.RawMessage
	switch {
	case strings.TrimSpace(r.Sentence) == "" || len(r.Sentence) > MaxSentence:
		return out, errs.New(errs.InvalidRequest, "the sentence must have 1 to %d bytes, not %d", MaxSentence, len(r.Sentence))
	case len(r.Context) > plan.MaxArguments || len(r.Context) > 0 && json.Unmarshal(r.Context, &context) != nil:
		return out, errs.New(errs.InvalidRequest, "context must be a JSON object of at most %d bytes", plan.MaxArguments)
	}
	words := newLexicon()
	clauses := words.split(scan(r.Sentence))
	if len(clauses) > MaxSteps {
		out.Unclear = append(out.Unclear, fmt.Sprintf("the sentence has %d steps, at most %d are allowed", len(clauses), MaxSteps))
		return out, nil
	}
	r.chooseIDs(len(clauses))
	var steps []*step
	for i, c := range clauses {
		result := ""
		if i > 0 {
			result = "$" + r.ids[i-1] + ".result"
		}
		s := r.match(words, c, result, context)
		if s == nil {
			out.Unclear = append(out.Unclear, words.text(c, nil))
			return out, nil
		}
		steps = append(steps, s)
	}
	out.Confidence = 1
	valid := true
	for i, s := range steps {
		needs, strength := r.dependencies(steps, i)
		out.add(r.ids[i], s, needs, strength, r.Density)
		valid = valid && s.valid()
	}
	out.Confidence = math.Round(out.Confidence*1e4) / 1e4
	_, err := plan.New(out.Steps, "")
	switch {
	case out.Confidence < suggestionConfidence:
	case out.Confidence >= executeConfidence && len(out.Missing)+len(out.Unclear) == 0 && valid && err == nil:
		out.Verdict = Execute
	default:
		out.Verdict = Suggestion
	}
	return out, nil
}

// step is the tool of a clause with its arguments.
type step struct {
	*form
	rank    float64
	others  []*step // the other tools that were kept
	unclear []string
}

// match returns the step for a clause, nil if no tool is found. Of the best tools it takes the one that fits the clause best.
func (r *Request) match(words lexicon, c *clause, result string, context map[string]json.RawMessage) *step {
	var kept []*step
	text := words.text(c, nil)
	if text != "" {
		for _, t := range r.Find(text) {
			kept = append(kept, &step{form: &form{tool: &t}, rank: scoreShare*t.Score + rankShare*t.PageRank})
		}
	}
	slices.SortStableFunc(kept, func(a, b *step) int { return cmp.Or(cmp.Compare(b.rank, a.rank), cmp.Compare(a.tool.ID, b.tool.ID)) })
	if kept = kept[:min(len(kept), keptTools)]; len(kept) == 0 {
		return nil
	}
	var best *step
	for _, s := range kept {
		s.form = words.newForm(s.tool, c, result, context)
		better := best != nil && s.rank >= closeRank*kept[0].rank && s.faults() < best.faults() && danger(s.tool) <= danger(kept[0].tool)
		if best == nil || better {
			best = s
		}
	}
	best.unclear = append(best.unexpressed(), best.unsupported()...)
	server, _, _ := strings.Cut(best.tool.ID, ":")
	for _, s := range kept {
		if s == best {
			continue
		}
		best.others = append(best.others, s)
		if s.rank >= closeRank*best.rank && s.faults() <= best.faults() && !strings.HasPrefix(s.tool.ID, server+":") {
			best.unclear = append(best.unclear, "either "+best.tool.ID+" or "+s.tool.ID)
		}
	}
	r.scoreAgain(words, best)
	return best
}

// scoreAgain raises the score to that of the words that no argument expresses, if it is higher. A word is unclear if the
// score is higher without it: it asks for something that the tool does not do.
func (r *Request) scoreAgain(words lexicon, s *step) {
	explained := s.explained()
	score := r.score(words.text(s.clause, explained), s.tool.ID)
	s.tool.Score = max(s.tool.Score, score)
	if len(s.tokens) > maxWords {
		s.unclear = append(s.unclear, fmt.Sprintf("more than %d words in one step", maxWords))
	}
	if len(s.unclear) > 0 || s.tool.Score < suggestionConfidence { // it is not executed
		return
	}
	for i, t := range s.tokens {
		if t.kind == word && !explained[i] && !s.isOfTool(t.plain) {
			explained[i] = true
			if r.score(words.text(s.clause, explained), s.tool.ID) > unknownWord*score {
				s.unclear = append(s.unclear, t.text)
			}
			explained[i] = false
		}
	}
}

// score returns the score of a tool for a text.
func (r *Request) score(text, id string) float64 {
	if text != "" {
		for _, t := range r.Find(text) {
			if t.ID == id {
				return t.Score
			}
		}
	}
	return 0
}

// dependencies returns the steps that a step needs, and the strength of its best path in the usage graph. Steps
// that change something keep the order of the sentence, and so do steps around "then".
func (r *Request) dependencies(steps []*step, i int) (needs []string, strength float64) {
	strengths := []float64{0.50, 0.95, 0.80, 0.65} // by hops, first for no path
	strength = strengths[0]
	then := i
	for then > 0 && !steps[then].sequential {
		then--
	}
	for k, earlier := range steps[:i] {
		hops := r.Hops(earlier.tool.ID, steps[i].tool.ID)
		if hops < 0 || hops >= len(strengths) {
			hops = 0
		}
		strength = max(strength, strengths[hops])
		if hops > 0 || k < then || danger(earlier.tool)+danger(steps[i].tool) > 0 || k == i-1 && steps[i].refers {
			needs = append(needs, r.ids[k])
		}
	}
	return needs, strength
}

// add adds a step with its id and its arguments.
func (p *Proposal) add(id string, s *step, needs []string, strength float64, density float64) {
	p.Steps = append(p.Steps, plan.Step{ID: id, Tool: s.tool.ID, Arguments: encode(s.root.object), DependsOn: needs, Approve: danger(s.tool) > 1})
	p.Confidence = min(p.Confidence, confidence(s.tool, strength, density))
	for _, f := range s.missing() {
		m := Missing{Step: id, Argument: f.pointer()}
		if f.schema != nil {
			m.Description = f.schema.Description
			m.Schema, _ = json.Marshal(f.schema) // nil where it cannot be encoded
		}
		p.Missing = append(p.Missing, m)
	}
	for _, o := range s.others {
		p.Alternatives = append(p.Alternatives, Alternative{id, o.tool.ID, o.tool.Score})
	}
	p.Unclear = append(p.Unclear, s.unclear...)
}

// confidence weighs the score, the PageRank and the path of a step. The last two have more weight in a dense usage graph.
func confidence(t *Tool, path, density float64) float64 {
	weights := [3]float64{0.55, 0.30, 0.15}
	switch {
	case density < 0.01:
		weights = [3]float64{0.85, 0.05, 0.10}
	case density < 0.10:
		weights = [3]float64{0.65, 0.20, 0.15}
	}
	return weights[0]*t.Score + weights[1]*t.PageRank + weights[2]*path
}

// danger returns 0 for a tool that reads, 1 for one that writes, and 2 for others.
func danger(t *Tool) int {
	return 2 + map[models.ToolClass]int{models.ToolRead: -2, models.ToolWrite: -1}[t.Class]
}

// chooseIDs chooses the ids of n steps: t1, t2 and so on, without those that are taken.
func (r *Request) chooseIDs(n int) {
	for i := 1; len(r.ids) < n; i++ {
		if id := fmt.Sprintf("t%d", i); r.Taken == nil || !r.Taken(id) {
			r.ids = append(r.ids, id)
		}
	}
}
