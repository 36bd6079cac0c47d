package registry

import (
	"context"
	"time"

	"comet/store"
)

const (
	// lineageFor is how long the chain of the agents above an agent is kept.
	lineageFor = time.Second
	// maxLineage is the number of agents whose chains are kept.
	maxLineage = 20_000
)

// lineage has the chains of agents, which are at most lineageFor old.
type lineage struct {
	turn   chan struct{} // of capacity 1; full while a call uses the other fields
	since  time.Time
	chains map[string][]string // nil for an agent that does not exist
}

// read returns the chain of each agent that exists: the agent itself and the agents above it. Concurrent calls share the
// statement that reads the chains from s.
func (l *lineage) read(ctx context.Context, s *store.Store, ids []string) (map[string][]string, error) {
	select {
	case l.turn <- struct{}{}: // held during the statement too
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
