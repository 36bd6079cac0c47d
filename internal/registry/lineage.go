package registry

import (
	"context"
	"sync"
	"time"
)

const (
	// lineageFor is how long it is kept which agents are above an agent.
	lineageFor = time.Second
	// maxLineage is of how many agents it is kept.
	maxLineage = 20_000
)

// lineage has the agents above others, as they stood at most lineageFor ago.
type lineage struct {
	mu     sync.Mutex
	since  time.Time
	chains map[string][]string // nil for an agent that does not exist
}

// Chains returns, for each of the agents that exist, the agent itself and those above it, as they stood at most a second ago.
// Concurrent calls share the statement that reads them. The result must not be modified.
func (r *Registry) Chains(ctx context.Context, ids []string) (map[string][]string, error) {
	l := &r.lineage
	l.mu.Lock() // during the read too
	defer l.mu.Unlock()
	if age := r.store.Now().Sub(l.since); age < 0 || age >= lineageFor || len(l.chains)+len(ids) > maxLineage {
		l.since, l.chains = r.store.Now(), map[string][]string{}
	}
	var unknown []string
	for _, id := range ids {
		if _, ok := l.chains[id]; !ok && id != "" {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) > 0 {
		read, err := r.store.Agents(ctx).Chains(unknown)
		if err != nil {
			return nil, err
		}
		for _, id := range unknown {
			l.chains[id] = read[id]
		}
	}
	out := make(map[string][]string, len(ids))
	for _, id := range ids {
		if chain := l.chains[id]; chain != nil {
			out[id] = chain
		}
	}
	return out, nil
}
