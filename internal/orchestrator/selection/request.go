package selection

import "slices"

// DefaultThreshold is the least part of the required capabilities that a candidate
// has (PROTOCOL_V5 §5.1).
const DefaultThreshold = 0.5

// Request is a piece of work that looks for somebody. One that requires no
// capability names an agent or a type; otherwise it matches nobody.
type Request struct {
	// Capabilities are required; a name matches with or without its custom: prefix,
	// and counts once.
	Capabilities []string
	// AgentType is the wanted type, "" for any.
	AgentType string
	// SphereID is the wanted sphere, 0 for any.
	SphereID int
	// Depth is how many hand-offs lie above the work, and MaxDepth what an agent takes
	// that did not say how deep it goes, 0 for any depth.
	Depth, MaxDepth int
	// AgentID is the id of the wanted agent, "" for any.
	AgentID string
	// Exclude has the ids of agents that failed this task already, or whose budget
	// refused it.
	Exclude []string
	// Threshold is the least score of a candidate; 0 stands for DefaultThreshold. A
	// class of tasks that is content with any match sets a small one.
	Threshold float64
	// Rank orders the candidates; nil stands for ByScore.
	Rank Ranking
}

// stage is how far an agent came through the rules, which are asked in this order.
type stage uint8

const (
	// Whoever ends here does not offer what is wanted.
	stageInactive stage = iota
	stageType
	stageSphere
	stageRequested
	stageThreshold
	stageDepth
	// Whoever ends here offers it, and is down.
	stageOffline
	stageBreaker
	// The exclusion is asked before fullness, since nobody should wait for an agent
	// that is excluded, and after the link, since forgiving does not bring it up.
	stageExcluded
	// Whoever ends here is up and full.
	stageBusy
	stageSaturated
	stageEligible
	stageCount = int(stageEligible) + 1
)

// tooDeep reports whether the work lies deeper than an agent goes, which says so itself or
// not (PROTOCOL_V5 §4.3, §5.4).
func (r *Request) tooDeep(most int) bool {
	if most == 0 {
		most = r.MaxDepth
	}
	return most != 0 && r.Depth > 0 && r.Depth >= most
}

// check asks the rules one after the other and returns the first that the agent does
// not meet.
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
