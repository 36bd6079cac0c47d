package selection

import "slices"

// DefaultThreshold is the minimum share of the required capabilities (PROTOCOL_V5 §5.1).
const DefaultThreshold = 0.5

// Request describes what a task requires of an agent. Without capabilities it must name an agent
// or a type; otherwise nothing matches.
type Request struct {
	// Capabilities are required. A name matches with or without the prefix custom:, and counts
	// once.
	Capabilities []string
	// AgentType is the required type, "" for any.
	AgentType string
	// SphereID is the required sphere, 0 for any.
	SphereID int
	// Depth is the number of hand-offs above the task. MaxDepth is the limit for agents without
	// one of their own, 0 for any depth.
	Depth, MaxDepth int
	// AgentID is the id of the required agent, "" for any.
	AgentID string
	// Exclude lists agents that failed the task before, or whose budget did not cover it.
	Exclude []string
	// Threshold is the minimum score of a candidate; 0 is DefaultThreshold. A small value accepts
	// any match.
	Threshold float64
	// Rank orders the candidates; nil is ByScore.
	Rank Ranking
}

// stage is the check at which an agent was rejected. The checks run in this order.
type stage uint8

const (
	// Up to stageDepth: the agent does not offer the work.
	stageInactive stage = iota
	stageType
	stageSphere
	stageRequested
	stageThreshold
	stageDepth
	// Up to stageBreaker: the agent offers it, but is not available.
	stageOffline
	stageBreaker
	// Exclusion is checked before saturation, because waiting for an excluded agent is useless,
	// and after availability, because lifting the exclusion does not bring an agent online.
	stageExcluded
	// Up to stageSaturated: the agent is online and full.
	stageBusy
	stageSaturated
	stageEligible
	stageCount = int(stageEligible) + 1
)

// tooDeep reports whether the depth of the task reaches most, or MaxDepth if most is 0
// (PROTOCOL_V5 §4.3, §5.4).
func (r *Request) tooDeep(most int) bool {
	if most == 0 {
		most = r.MaxDepth
	}
	return most != 0 && r.Depth > 0 && r.Depth >= most
}

// check runs the checks and returns the first that the agent does not pass.
func (r *Request) check(f *match, score float64) stage {
	switch {
	case !f.live.is(liveActive):
		return stageInactive
	case !f.typeFits:
		return stageType
	case r.SphereID != 0 && int(f.sphere) != r.SphereID:
		return stageSphere
	case r.AgentID != "" && f.id != r.AgentID:
		return stageRequested
	case score < r.Threshold:
		return stageThreshold
	case r.tooDeep(f.live.maxDepth()):
		return stageDepth
	case !f.live.is(liveOnline | liveBusy):
		return stageOffline
	case !f.live.is(liveClosed):
		return stageBreaker
	case slices.Contains(r.Exclude, f.id):
		return stageExcluded
	case f.live.is(liveBusy):
		return stageBusy
	case f.live.is(liveSaturated):
		return stageSaturated
	}
	return stageEligible
}
