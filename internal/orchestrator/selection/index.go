package selection

import (
	"slices"
	"sync"
)

// Index holds agents by their capabilities and types. It is safe for concurrent use.
type Index struct {
	// changeMu serializes changes. It is taken before mu.
	changeMu sync.Mutex
	// mu guards the table, but not the snapshots of records: they are replaced atomically.
	mu        sync.RWMutex
	table     *agentTable
	scratches sync.Pool
}

// New returns an empty index.
func New() *Index { return &Index{table: newAgentTable(0)} }

// Replace replaces all agents; of two with the same id the later one counts. Changes since the
// agents were read are lost, unless they are applied again.
func (x *Index) Replace(all []Agent) {
	t := newAgentTable(len(all))
	for _, a := range all {
		t.put(a)
	}
	x.changeMu.Lock()
	defer x.changeMu.Unlock()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.table = t
}

// Put adds or replaces an agent.
func (x *Index) Put(a Agent) {
	x.changeMu.Lock()
	defer x.changeMu.Unlock()
	x.put(x.table.find(a.ID), a)
}

// Update changes an agent and reports whether it is known. fn is called once, without concurrent
// changes. It must not change the index, nor write into Capabilities (it may replace them); a
// change of the ID is ignored.
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

// put publishes a new snapshot of an agent; r is its record if it is known. Only a change of its
// memberships blocks readers.
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

// Agent returns an agent.
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

// CapabilitiesOf returns the capabilities of the active agents of a type, of all for "", sorted
// and without their prefix custom:. They are listed when unsupported work is rejected.
func (x *Index) CapabilitiesOf(agentType string) []string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.table.offers.of(agentType)
}
