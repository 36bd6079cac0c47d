package selection

// Verdict tells the orchestrator what to do next.
type Verdict string

// The verdicts. The first that holds is given.
const (
	// Chosen: the first candidate is to take the work.
	Chosen Verdict = "chosen"
	// Saturated: nobody is free, but somebody who is not excluded is up and full.
	// Waiting helps.
	Saturated Verdict = "saturated"
	// Excluded: whoever is up was excluded.
	Excluded Verdict = "excluded"
	// Unavailable: it is offered, but all who do are down or behind a breaker.
	Unavailable Verdict = "unavailable"
	// Unsupported: nobody registered and active offers it: not of that type, not in
	// that sphere, not the wanted agent, not enough of it, or not so deep.
	Unsupported Verdict = "unsupported"
)

// Reason is why an agent that has one of the required capabilities is out. Where
// several hold, it is the first in the order of the constants.
type Reason string

// The reasons, in the order in which they are looked for.
const (
	ReasonInactive       Reason = "inactive"
	ReasonWrongType      Reason = "wrong_type"
	ReasonWrongSphere    Reason = "wrong_sphere"
	ReasonNotRequested   Reason = "not_wanted"
	ReasonBelowThreshold Reason = "below_threshold"
	ReasonTooDeep        Reason = "too_deep" // it takes nothing that was handed off so often
	ReasonOffline        Reason = "offline"
	ReasonBreakerOpen    Reason = "breaker_open" // or half-open
	ReasonExcluded       Reason = "excluded"
	ReasonBusy           Reason = "busy"
	ReasonSaturated      Reason = "saturated"
)

// MaxListed is how many candidates, and how many rejected agents, a decision lists.
const MaxListed = 10

// Decision is the outcome of a Select. Its JSON form is stored on the task.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	// Considered is how many agents were looked at: those with at least one of the
	// required capabilities, or, where none is required, the wanted agent or the
	// agents of the wanted type.
	Considered int `json:"considered"`
	// Eligible is how many of them may take the work.
	Eligible int `json:"eligible"`
	// Candidates are the first MaxListed of the eligible, best first; never nil.
	Candidates []Ranked `json:"candidates"`
	// Rejected are MaxListed of the others, the nearest misses first: by how far they
	// came through the reasons, then as ranked; never nil.
	Rejected []Rejection `json:"rejected"`
}

// Rejection is an agent that was considered and is out.
type Rejection struct {
	Ranked

	Reason Reason `json:"reason"`
}

// reason is how a step is called in a decision.
func (s stage) reason() Reason {
	return [...]Reason{
		stageInactive:  ReasonInactive,
		stageType:      ReasonWrongType,
		stageSphere:    ReasonWrongSphere,
		stageRequested: ReasonNotRequested,
		stageThreshold: ReasonBelowThreshold,
		stageDepth:     ReasonTooDeep,
		stageOffline:   ReasonOffline,
		stageBreaker:   ReasonBreakerOpen,
		stageExcluded:  ReasonExcluded,
		stageBusy:      ReasonBusy,
		stageSaturated: ReasonSaturated,
	}[s]
}

// verdict judges from how many agents ended at each step.
func verdict(ended *[stageCount]int) Verdict {
	switch {
	case ended[stageEligible] > 0:
		return Chosen
	case ended[stageBusy]+ended[stageSaturated] > 0:
		return Saturated
	case ended[stageExcluded] > 0:
		return Excluded
	case ended[stageOffline]+ended[stageBreaker] > 0:
		return Unavailable
	}
	return Unsupported
}
