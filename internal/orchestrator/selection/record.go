package selection

import "sync/atomic"

// record is the place of one agent in the world. What a Select asks of an agent is
// here side by side, and records lie side by side in chunks: the holders of a
// capability are anywhere among all agents, and fetching them from memory is most of
// what a Select costs.
type record struct {
	// id, group and sphere change with the world, the others at any time.
	id           string
	group        *group // of its type; nil where it has none
	sphere       int32
	live         atomic.Uint32 // a live
	lastAssigned atomic.Int64  // Agent.LastUsed in Unix microseconds
	// agent is all that is known, in a snapshot that nobody changes.
	agent atomic.Pointer[snapshot]
}

// snapshot is an agent, and where it stands in the groups of its capabilities and of
// its type. Only whoever changes the world reads the places.
type snapshot struct {
	Agent

	memberships []membership
}

// publish makes a snapshot the present one. Who reads at the same time may see the new
// load with the old time of last use, which only decides between equals.
func (r *record) publish(s *snapshot) {
	r.agent.Store(s)
	r.lastAssigned.Store(s.LastAssignedAt.UnixMicro())
	r.live.Store(uint32(liveOf(&s.Agent)))
}

// liveState is what changes all the time, in one word.
type liveState uint32

const (
	liveLoad liveState = 1<<7 - 1 // the effective load
	liveFlag liveState = 1 << 7

	liveActive    = liveFlag
	liveOnline    = liveFlag << 1
	liveBusy      = liveFlag << 2
	liveClosed    = liveFlag << 3 // the breaker
	liveSaturated = liveFlag << 4

	liveDepth     = liveFlag << 5 // the first of three bits
	liveDepthMask = 7
)

func liveOf(a *Agent) liveState {
	l := liveState(a.EffectiveLoad()) | liveState(min(max(a.MaxDepth, 0), liveDepthMask))*liveDepth
	for flag, set := range [...]bool{a.Active, a.State == Online, a.State == Busy, a.BreakerClosed(), a.Saturated()} {
		if set {
			l |= liveFlag << flag
		}
	}
	return l
}

func (l liveState) is(flag liveState) bool { return l&flag != 0 }
func (l liveState) load() int              { return int(l & liveLoad) }
func (l liveState) maxDepth() int          { return int(l / liveDepth & liveDepthMask) }
