package selection

import (
	"slices"
	"sync"
	"time"
	"unique"

	"comet/models"
)

// Index holds agents by their capabilities and types. It is safe for concurrent use.
type Index struct {
	mu     sync.RWMutex
	agents map[string]*entry
	// groups are the agents of a type, or with a capability, unordered. An agent whose capability is
	// not folded is also in the group of the folded one, with the type foldedNames.
	groups map[key][]*entry
	// offers counts the active agents with a capability: by type, and all under the type "".
	offers map[key]int
}

// entry is an agent with its capabilities in canonical form.
type entry struct {
	Agent

	names []string
	folds []string // of the names that are not folded, sorted, nil for none
}

type key struct{ agentType, capability string }

// New returns an empty index.
func New() *Index {
	return &Index{agents: map[string]*entry{}, groups: map[key][]*entry{}, offers: map[key]int{}}
}

// Change calls fn with an agent (only the ID is set if it is unknown) and stores the changed agent
// if fn returns true. fn must not use the index, write into Capabilities (it may replace them) or
// change the ID.
func (x *Index) Change(id string, fn func(*Agent) bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, known := x.agents[id]
	if !known {
		e = &entry{Agent: Agent{ID: id}}
	}
	a := e.Agent
	if !fn(&a) {
		return
	}
	a.ID = id
	if known && a.Type == e.Type && a.Active == e.Active && slices.Equal(a.Capabilities, e.Capabilities) {
		a.Capabilities = e.Capabilities
		e.Agent = a
		return
	}
	x.unlink(e)
	a.Type, a.Capabilities = unique.Make(a.Type).Value(), slices.Clone(a.Capabilities)
	for i, name := range a.Capabilities { // many agents have the same
		a.Capabilities[i] = unique.Make(name).Value()
	}
	e.Agent, e.names, e.folds = a, models.CapabilityKeys(a.Capabilities), nil
	for _, name := range e.names {
		if f := fold(name); f != name {
			e.folds = append(e.folds, unique.Make(f).Value())
		}
	}
	slices.Sort(e.folds)
	e.folds = slices.Compact(e.folds)
	x.agents[id] = e
	for _, k := range e.keys() {
		x.groups[k] = append(x.groups[k], e)
	}
	x.countOffers(e, 1)
}

// keys returns the groups of an agent.
func (e *entry) keys() []key {
	keys := make([]key, 0, len(e.names)+len(e.folds)+1)
	if e.Type != "" {
		keys = append(keys, key{agentType: e.Type})
	}
	for _, name := range e.names {
		keys = append(keys, key{capability: name})
	}
	for _, name := range e.folds {
		keys = append(keys, key{foldedNames, name})
	}
	return keys
}

// unlink removes an agent from its groups.
func (x *Index) unlink(e *entry) {
	for _, k := range e.keys() {
		members := x.groups[k]
		last := len(members) - 1
		members[slices.Index(members, e)] = members[last]
		members[last] = nil
		if x.groups[k] = members[:last]; last == 0 {
			delete(x.groups, k)
		}
	}
	x.countOffers(e, -1)
}

// countOffers adds n, 1 or -1, for each capability of an active agent.
func (x *Index) countOffers(e *entry, n int) {
	if !e.Active {
		return
	}
	for _, name := range e.names {
		for _, k := range slices.Compact([]key{{"", name}, {e.Type, name}}) {
			if x.offers[k] += n; x.offers[k] == 0 {
				delete(x.offers, k)
			}
		}
	}
}

// Agent returns an agent.
func (x *Index) Agent(id string) (Agent, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	e, ok := x.agents[id]
	if !ok {
		return Agent{}, false
	}
	a := e.Agent
	a.Capabilities = slices.Clone(a.Capabilities)
	return a, true
}

// Worker returns the state of an agent as a worker; the zero value is an agent that never joined.
func (x *Index) Worker(id string) models.Worker {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if e, ok := x.agents[id]; ok {
		return e.Worker
	}
	return models.Worker{}
}

// Workers calls each with the agents that have joined. each must not use the index.
func (x *Index) Workers(each func(*models.Worker)) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for _, e := range x.agents {
		if e.Worker.AgentID != "" {
			each(&e.Worker)
		}
	}
}

// Claim adds an attempt to an agent that has a free slot, and reports whether it had one. at is the time
// of the assignment, the zero time to leave the last one.
func (x *Index) Claim(id string, at time.Time) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	e, ok := x.agents[id]
	if !ok || e.saturated() {
		return false
	}
	e.Worker.InFlight++
	e.Claims++
	if !at.IsZero() {
		e.Worker.LastAssignedAt = at
	}
	return true
}

// Release removes an attempt that Claim has added.
func (x *Index) Release(id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if e, ok := x.agents[id]; ok && e.Claims > 0 {
		e.Worker.InFlight--
		e.Claims--
	}
}

// CapabilitiesOf returns the capabilities of the active agents of a type, of all for "", sorted
// and without their prefix custom:, never nil. They are listed when unsupported work is rejected.
func (x *Index) CapabilitiesOf(agentType string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	out := []string{}
	for k := range x.offers {
		if k.agentType == agentType {
			out = append(out, k.capability)
		}
	}
	slices.Sort(out)
	return out
}

// Select returns the agents that may get a task. Its time grows with the number of agents that
// have one of the required capabilities, and with the length of Exclude.
func (x *Index) Select(r Request) Decision {
	switch {
	case r.Weighted:
		r.Rank = ByWeight
	case r.Rank == nil:
		r.Rank = ByScore
	}
	if !(r.Threshold > 0) {
		r.Threshold = DefaultThreshold
	}
	d := decide(x.judge(&r), r.Rank)
	d.Weighted = r.Weighted
	return d
}

// judge checks the agents that have any of the required capabilities or, if none is required, the
// requested agent or the agents of the type.
func (x *Index) judge(r *Request) (rows []judged) {
	names := models.CapabilityKeys(r.Capabilities)
	x.mu.RLock()
	defer x.mu.RUnlock()
	if r.Weighted && len(names) > 0 {
		return x.judgeFolded(r, names)
	}
	for i, name := range names {
		members := x.groups[key{capability: name}]
		if i == 0 {
			rows = make([]judged, 0, len(members))
		}
		for _, e := range members {
			if e.countOf(names[:i]) == 0 { // it was not found by an earlier name
				score := float64(1+e.countOf(names[i+1:])) / float64(len(names))
				rows = append(rows, r.judge(&e.Agent, score))
			}
		}
	}
	switch e, known := x.agents[r.AgentID]; {
	case len(names) > 0 || r.AgentID != "" && !known:
	case known:
		rows = append(rows, r.judge(&e.Agent, 1))
	case r.AgentType != "":
		for _, e := range x.groups[key{agentType: r.AgentType}] {
			rows = append(rows, r.judge(&e.Agent, 1))
		}
	}
	return rows
}

// countOf returns how many of the capabilities the agent has.
func (e *entry) countOf(names []string) (n int) {
	for _, name := range names {
		if slices.Contains(e.names, name) {
			n++
		}
	}
	return n
}

// Best returns the id of the best agent that could do work with the given capabilities now, except for some
// agents, "" for none.
func (x *Index) Best(capabilities []string, except ...string) string {
	if len(capabilities) == 0 {
		return ""
	}
	d := x.Select(Request{Capabilities: capabilities, Exclude: except})
	if len(d.Candidates) == 0 {
		return ""
	}
	return d.Candidates[0].AgentID
}
