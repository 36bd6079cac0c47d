package selection

import (
	"slices"
	"sync"
)

// Index knows the agents by their capabilities and types. It is safe for concurrent
// use.
type Index struct {
	// changeMu is held by whoever changes anything, so one change follows another.
	// It is taken before mu.
	changeMu sync.Mutex
	// mu guards what the world holds, but not which snapshot a record shows: that
	// is replaced in one stroke while others read.
	mu        sync.RWMutex
	table     *agentTable
	scratches sync.Pool
}

// New returns an index that knows nobody.
func New() *Index { return &Index{table: newAgentTable(0)} }

// Replace forgets everybody and knows these instead; of two with the same id, the
// later. What others changed since the agents were read is lost, unless they change
// it again.
func (x *Index) Replace(all []Agent) {
	w := newAgentTable(len(all))
	for _, a := range all {
		w.put(a)
	}
	x.changeMu.Lock()
	defer x.changeMu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.table = w
}

// Put makes this what is known of the agent.
func (x *Index) Put(a Agent) {
	x.changeMu.Lock()
	defer x.changeMu.Unlock()
	x.put(x.table.find(a.ID), a)
}

// Update changes what is known of an agent, and reports whether it is known. fn is
// called once, and no other change comes between. It must not change the index
// itself, nor write into the Capabilities it is shown (it may replace them); what it
// does to the ID is ignored.
func (x *Index) Update(id string, fn func(*Agent)) bool {
	x.changeMu.Lock()
	defer x.changeMu.Unlock()
	r := x.table.find(id)
	if r == nil {
		return false
	}
	a := r.agent.Load().Agent
	fn(&a)
	a.ID = id
	x.put(r, a)
	return true
}

// put shows a new snapshot of an agent, r being its record if it is known. Only one
// that stands in other places makes readers wait.
func (x *Index) put(r *record, a Agent) {
	if r != nil {
		if old := r.agent.Load(); sameMemberships(&old.Agent, &a) {
			a.Capabilities = old.Capabilities
			r.publish(&snapshot{a, old.memberships})
			return
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.table.put(a)
}

// Agent returns what is known of an agent.
func (x *Index) Agent(id string) (Agent, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	r := x.table.find(id)
	if r == nil {
		return Agent{}, false
	}
	a := r.agent.Load().Agent
	a.Capabilities = slices.Clone(a.Capabilities)
	return a, true
}

// CapabilitiesOf returns, sorted and without their custom: prefixes, the capabilities
// that active agents of a type have; of all active agents for "". They are what is said
// to be supported where work is refused that is not.
func (x *Index) CapabilitiesOf(agentType string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.table.offers.of(agentType)
}
