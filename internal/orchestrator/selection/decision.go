package selection

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
	ReasonTooDeep        Reason = "too_deep" // it accepts no hand-offs of this depth
	ReasonOffline        Reason = "offline"
	ReasonBreakerOpen    Reason = "breaker_open" // or half-open
	ReasonExcluded       Reason = "excluded"
	ReasonBusy           Reason = "busy"
	ReasonSaturated      Reason = "saturated"
)

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
	Rejected []Rejection `json:"rejected"`
}

// Rejection is a considered agent that is not eligible.
type Rejection struct {
	Ranked

	Reason Reason `json:"reason"`
}

// reason returns the reason for a rejection at a stage.
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

// verdict returns the verdict for the numbers of agents by the stage of their rejection.
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
