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
	// Type is the wanted type, "" for any.
	Type string
	// Sphere is the wanted sphere, 0 for any.
	Sphere int
	// Depth is how many hand-offs lie above the work, and MaxDepth what an agent takes
	// that did not say how deep it goes, 0 for any depth.
	Depth, MaxDepth int
	// Agent is the id of the wanted agent, "" for any.
	Agent string
	// Exclude has the ids of agents that failed this task already, or whose budget
	// refused it.
	Exclude []string
	// Threshold is the least score of a candidate; 0 stands for DefaultThreshold. A
	// class of tasks that is content with any match sets a small one.
	Threshold float64
	// Rank orders the candidates; nil stands for ByScore.
	Rank Ranking
}

// step is how far an agent came through the rules, which are asked in this order.
type step uint8

const (
	// Whoever ends here does not offer what is wanted.
	atInactive step = iota
	atType
	atSphere
	atWanted
	atThreshold
	atDepth
	// Whoever ends here offers it, and is down.
	atOffline
	atBreaker
	// The exclusion is asked before fullness, since nobody should wait for an agent
	// that is excluded, and after the link, since forgiving does not bring it up.
	atExcluded
	// Whoever ends here is up and full.
	atBusy
	atSaturated
	eligible
	steps = int(eligible) + 1
)

// tooDeep reports whether the work lies deeper than an agent goes, which says so itself or
// not (PROTOCOL_V5 §4.3, §5.4).
func (r *Request) tooDeep(most int) bool {
	if most == 0 {
		most = r.MaxDepth
	}
	return most != 0 && r.Depth > 0 && r.Depth >= most
}

// judge asks the rules one after the other and returns the first that the agent does
// not meet.
func (r *Request) judge(f *found, score float64) step {
	switch {
	case !f.live.is(liveActive):
		return atInactive
	case !f.typeFits:
		return atType
	case r.Sphere != 0 && int(f.sphere) != r.Sphere:
		return atSphere
	case r.Agent != "" && f.id != r.Agent:
		return atWanted
	case score < r.Threshold:
		return atThreshold
	case r.tooDeep(f.live.maxDepth()):
		return atDepth
	case !f.live.is(liveOnline | liveBusy):
		return atOffline
	case !f.live.is(liveClosed):
		return atBreaker
	case slices.Contains(r.Exclude, f.id):
		return atExcluded
	case f.live.is(liveBusy):
		return atBusy
	case f.live.is(liveSaturated):
		return atSaturated
	}
	return eligible
}
