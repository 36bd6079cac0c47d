package selection

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Verdict is the result of a Select.
type Verdict string

// The verdicts. The first that applies is used.
const (
	// Chosen: the first candidate gets the task.
	Chosen Verdict = "chosen"
	// Saturated: no agent is free, but one that is not excluded is online and full. The task
	// should wait.
	Saturated Verdict = "saturated"
	// Excluded: all online agents were excluded.
	Excluded Verdict = "excluded"
	// Unavailable: all agents that offer the work are offline or have an open breaker.
	Unavailable Verdict = "unavailable"
	// Unsupported: no active agent offers the work with the required type, sphere, id, threshold
	// and depth.
	Unsupported Verdict = "unsupported"
	// OverBudget: no suitable agent's budget covers the task. The caller of Select sets it.
	OverBudget Verdict = "over_budget"
)

// Reason is why an agent with one of the required capabilities is rejected. If several apply, it
// is the first in the order of the constants.
type Reason string

// The reasons, in the order of the checks.
const (
	ReasonInactive       Reason = "inactive"
	ReasonWrongType      Reason = "wrong_type"
	ReasonWrongSphere    Reason = "wrong_sphere"
	ReasonNotRequested   Reason = "not_wanted"
	ReasonBelowThreshold Reason = "below_threshold"
	ReasonTooDeep        Reason = "too_deep"        // it accepts no hand-offs of this depth
	ReasonSelfRegistered Reason = "self_registered" // and another agent meets the requirements
	ReasonOffline        Reason = "offline"
	ReasonBreakerOpen    Reason = "breaker_open" // or half-open
	ReasonExcluded       Reason = "excluded"
	ReasonBusy           Reason = "busy"
	ReasonSaturated      Reason = "saturated"
	ReasonOverBudget     Reason = "over_budget" // set by the caller of Select
)

// MaxListed is the maximum number of candidates, and of rejected agents, in a decision.
const MaxListed = 10

// Decision is the result of a Select. Its JSON form is stored in the task.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	// Considered is the number of agents with at least one of the required capabilities or, if
	// none is required, of the named agent or type.
	Considered int `json:"considered"`
	// Eligible is how many of them may get the task.
	Eligible int `json:"eligible"`
	// Candidates are the best MaxListed eligible agents, best first; never nil.
	Candidates []Ranked `json:"candidates"`
	// Rejected are MaxListed of the other agents, ordered by how many checks they passed, then as
	// ranked; never nil.
	Rejected []Ranked `json:"rejected"`
	// Weighted is Request.Weighted.
	Weighted bool `json:"weighted,omitzero"`
}

// Ranked is an agent as a Ranking compares it, and as the decision stores it.
type Ranked struct {
	AgentID string `json:"agent_id"`
	// Score is the share of the required capabilities that the agent has, 0-1; 1 if none is
	// required. A weighted decision counts a folded name as 0.9 of a capability.
	Score float64 `json:"score"`
	// Load is the greater of the reported load and the share of slots in use, in percent, 0-100.
	Load int `json:"load"`
	// LastAssignedAt is zero for an agent that never had a task.
	LastAssignedAt time.Time `json:"last_used"`
	// Reason is why the agent is not eligible, "" for a candidate.
	Reason Reason `json:"reason"`
}

// MarshalJSON encodes the fields as an array, with the time in microseconds since 1970 (0 for none) and
// without an empty reason, because decisions are a large part of a stored task.
func (r Ranked) MarshalJSON() ([]byte, error) {
	fields := []any{r.AgentID, r.Score, r.Load, max(r.LastAssignedAt.UnixMicro(), 0), r.Reason}
	if r.Reason == "" {
		fields = fields[:4]
	}
	return json.Marshal(fields)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *Ranked) UnmarshalJSON(text []byte) error {
	return r.UnmarshalJSONFrom(jsontext.NewDecoder(bytes.NewBuffer(text)))
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom. It also accepts the objects that earlier versions stored.
func (r *Ranked) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == '{' {
		type object Ranked
		return jsonv2.UnmarshalDecode(dec, (*object)(r))
	}
	var at int64
	fields := []any{&r.AgentID, &r.Score, &r.Load, &at, &r.Reason}
	_, err := dec.ReadToken() // the bracket
	for ; err == nil && dec.PeekKind() != ']' && len(fields) > 0; fields = fields[1:] {
		err = jsonv2.UnmarshalDecode(dec, fields[0])
	}
	if err == nil {
		_, err = dec.ReadToken()
	}
	if at != 0 {
		r.LastAssignedAt = time.UnixMicro(at).UTC()
	}
	return err
}

// Ranking orders two eligible agents: negative if a is better than b. Equal ones are ordered by
// id. It must not keep the pointers, and is called without locks.
type Ranking func(a, b *Ranked) int

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

// judged is an agent with the number of checks it has passed.
type judged struct {
	Ranked

	passed         int
	selfRegistered bool
}

// judge checks an agent.
func (r *Request) judge(a *Agent, score float64) judged {
	return judged{Ranked{a.ID, score, a.load(), a.Worker.LastAssignedAt, ""}, r.check(a, score), a.SelfRegistered}
}

// compare orders by checks passed, then as ranked, then by id.
func (j *judged) compare(other *judged, rank Ranking) int {
	if j.passed != other.passed {
		return other.passed - j.passed
	}
	if c := rank(&j.Ranked, &other.Ranked); c != 0 {
		return c
	}
	return strings.Compare(j.AgentID, other.AgentID)
}

// decide ranks the agents. It rejects self-registered agents if another agent meets the requirements.
func decide(rows []judged, rank Ranking) Decision {
	why := reasons()
	limit := slices.Index(why[:], ReasonSelfRegistered)
	othersOffer := slices.ContainsFunc(rows, func(j judged) bool { return !j.selfRegistered && j.passed > limit })
	d := Decision{Considered: len(rows)}
	best, rejected := make([]*judged, 0, MaxListed), make([]*judged, 0, MaxListed)
	for i := range rows {
		if rows[i].selfRegistered && othersOffer {
			rows[i].passed = min(rows[i].passed, limit)
		}
		if why[rows[i].passed] == "" {
			best = insertRanked(best, &rows[i], rank)
			d.Eligible++
		} else {
			rejected = insertRanked(rejected, &rows[i], rank)
		}
	}
	d.Candidates, d.Rejected = make([]Ranked, len(best)), make([]Ranked, len(rejected))
	for i, row := range best {
		d.Candidates[i] = row.Ranked
	}
	for i, row := range rejected {
		d.Rejected[i] = row.Ranked
		d.Rejected[i].Reason = why[row.passed]
	}
	if d.Verdict = d.WithoutCandidates(); len(best) > 0 {
		d.Verdict = Chosen
	}
	return d
}

// WithoutCandidates returns the verdict if no candidate gets the task. The agents that passed most
// checks are listed first.
func (d Decision) WithoutCandidates() Verdict {
	if len(d.Rejected) == 0 {
		return Unsupported
	}
	return d.Rejected[0].Reason.Verdict()
}

// insertRanked adds a row at its position, if it is among the first MaxListed.
func insertRanked(rows []*judged, row *judged, rank Ranking) []*judged {
	at := len(rows)
	for at > 0 && row.compare(rows[at-1], rank) < 0 {
		at--
	}
	if at == MaxListed {
		return rows
	}
	return slices.Insert(rows[:min(len(rows), MaxListed-1)], at, row)
}

// Verdict returns the verdict if r is the reason of the agent that passed most checks.
func (r Reason) Verdict() Verdict {
	switch r {
	case ReasonBusy, ReasonSaturated:
		return Saturated
	case ReasonExcluded:
		return Excluded
	case ReasonOffline, ReasonBreakerOpen:
		return Unavailable
	}
	return Unsupported
}
