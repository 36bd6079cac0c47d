package selection

import (
	"maps"
	"slices"
	"sync/atomic"

	"comet/models"
)

// agentTable holds the agents. Changes need both locks of the Index.
type agentTable struct {
	// positions maps ids to positions. Agents are never removed: they are deactivated, and
	// Replace makes a new table.
	positions map[string]uint32
	chunks    []*[chunkSize]record

	groups map[key]*group
	offers offerCounts
}

// chunkSize is the number of records in a chunk; a chunk never moves.
const chunkSize = 512

func newAgentTable(size int) *agentTable {
	return &agentTable{positions: make(map[string]uint32, size), groups: map[key]*group{}, offers: offerCounts{}}
}

func (t *agentTable) record(pos uint32) *record { return &t.chunks[pos/chunkSize][pos%chunkSize] }

// find returns the record of an agent, nil if it is unknown.
func (t *agentTable) find(id string) *record {
	pos, ok := t.positions[id]
	if !ok {
		return nil
	}
	return t.record(pos)
}

// put adds an agent that is unknown, or whose memberships have changed.
func (t *agentTable) put(a Agent) {
	pos, known := t.positions[a.ID]
	if known {
		t.unlink(pos)
	} else {
		pos = t.addPosition(a.ID)
	}
	a.Capabilities = slices.Clone(a.Capabilities)
	t.link(pos, &snapshot{Agent: a})
}

func (t *agentTable) link(pos uint32, s *snapshot) {
	names := canonical(nil, s.Capabilities)
	s.memberships = make([]membership, 0, len(names)+1)
	for _, name := range names {
		s.memberships = append(s.memberships, t.addMember(pos, key{name: name}))
		t.offers.add(&s.Agent, name, 1)
	}
	r := t.record(pos)
	r.id, r.group, r.sphere = s.ID, nil, int32(s.SphereID)
	if s.Type != "" {
		p := t.addMember(pos, key{byType: true, name: s.Type})
		s.memberships = append(s.memberships, p)
		r.group = p.group
	}
	r.publish(s)
}

func (t *agentTable) unlink(pos uint32) {
	s := t.record(pos).agent.Load()
	for _, p := range s.memberships {
		if !p.group.key.byType {
			t.offers.add(&s.Agent, p.group.key.name, -1)
		}
		t.removeMember(p)
	}
}

// addPosition assigns the next position to an agent.
func (t *agentTable) addPosition(id string) uint32 {
	s := uint32(len(t.positions))
	if s%chunkSize == 0 {
		t.chunks = append(t.chunks, new([chunkSize]record))
	}
	t.positions[id] = s
	return s
}

// sameMemberships reports whether two versions of an agent are in the same groups.
func sameMemberships(a, b *Agent) bool {
	return a.Type == b.Type && a.SphereID == b.SphereID && a.Active == b.Active && slices.Equal(a.Capabilities, b.Capabilities)
}

// canonical appends the names in canonical form to into, sorted and without duplicates.
func canonical(into, names []string) []string {
	for _, name := range names {
		into = append(into, models.CapabilityKey(name))
	}
	slices.Sort(into)
	return slices.Compact(into)
}

// key identifies a group: the agents with a capability, or of a type.
type key struct {
	byType bool
	name   string
}

// group holds the positions of its members, unordered.
type group struct {
	key     key
	members []uint32
}

// membership is the index of an agent in a group, so that it can be removed without a search.
type membership struct {
	group *group
	at    int
}

// addMember adds the agent at a position to a group.
func (t *agentTable) addMember(pos uint32, k key) membership {
	g := t.groups[k]
	if g == nil {
		g = &group{key: k}
		t.groups[k] = g
	}
	g.members = append(g.members, pos)
	return membership{g, len(g.members) - 1}
}

// removeMember removes a member; the last member of the group takes its index.
func (t *agentTable) removeMember(p membership) {
	g, last := p.group, len(p.group.members)-1
	moved := g.members[last]
	g.members[p.at] = moved
	g.members = g.members[:last]
	places := t.record(moved).agent.Load().memberships
	for i := range places {
		if places[i].group == g {
			places[i].at = p.at
		}
	}
	if last == 0 {
		delete(t.groups, g.key)
	}
}

// offerCounts counts the active agents with a capability by their type, and all of them under "".
type offerCounts map[string]map[string]int

// add adds n, 1 or -1, for a capability of an active agent.
func (o offerCounts) add(a *Agent, capability string, n int) {
	if !a.Active {
		return
	}
	o.count("", capability, n)
	if a.Type != "" {
		o.count(a.Type, capability, n)
	}
}

func (o offerCounts) count(agentType, capability string, n int) {
	held := o[agentType]
	if held == nil {
		held = map[string]int{}
		o[agentType] = held
	}
	held[capability] += n
	if held[capability] == 0 {
		delete(held, capability)
	}
	if len(held) == 0 {
		delete(o, agentType)
	}
}

// of returns the capabilities of a type, sorted, never nil.
func (o offerCounts) of(agentType string) []string {
	names := slices.AppendSeq(make([]string, 0, len(o[agentType])), maps.Keys(o[agentType]))
	slices.Sort(names)
	return names
}

// record holds what a Select reads of an agent. Records are stored in chunks, because the agents
// with a capability are spread over all agents, and fetching them from memory is most of the cost
// of a Select.
type record struct {
	// id, group and sphere change with the table, the others at any time.
	id           string
	group        *group // of its type; nil for none
	sphere       int32
	live         atomic.Uint32 // a liveState
	lastAssigned atomic.Int64  // Agent.LastAssignedAt in Unix microseconds
	// agent is an immutable snapshot.
	agent atomic.Pointer[snapshot]
}

// snapshot is an agent with its memberships, which are only read under changeMu.
type snapshot struct {
	Agent

	memberships []membership
}

// publish replaces the snapshot. A concurrent reader may see the new load with the old time of
// the last assignment, which only decides between equal agents.
func (r *record) publish(s *snapshot) {
	r.agent.Store(s)
	r.lastAssigned.Store(s.LastAssignedAt.UnixMicro())
	r.live.Store(uint32(liveOf(&s.Agent)))
}

// liveState packs the values that change often into one word.
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
