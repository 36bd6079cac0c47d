package registry

import (
	"context"
	"sync"
	"time"

	"comet/store"
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

// read returns, for each of the agents that exist, the agent itself and those above it. Concurrent calls share the statement
// that reads them from s.
func (l *lineage) read(ctx context.Context, s *store.Store, ids []string) (map[string][]string, error) {
	l.mu.Lock() // during the statement too
	defer l.mu.Unlock()
	if age := s.Now().Sub(l.since); age < 0 || age >= lineageFor || len(l.chains)+len(ids) > maxLineage {
		l.since, l.chains = s.Now(), map[string][]string{}
	}
	var unknown []string
	for _, id := range ids {
		if _, ok := l.chains[id]; !ok && id != "" {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) > 0 {
		read, err := s.Agents(ctx).Chains(unknown)
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
