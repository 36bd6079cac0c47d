package toolsearch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"comet/models"
	"comet/store"
)

const (
	// purgeInterval is how often unused edges are deleted, and purgeBatch how many one
	// transaction deletes.
	purgeInterval = time.Hour
	purgeBatch    = 1000
	// retryDelay is the least wait after a failed read or write.
	retryDelay = 5 * time.Second
)

// ChangeKind is a kind of change of the usage graph.
type ChangeKind uint8

// The kinds of changes, published as events of the names in the comments.
const (
	EdgeCreated    ChangeKind = iota + 1 // edge_created
	EdgeUpdated                          // edge_updated
	GraphSynced                          // graph_synced: the graph was read from SQL
	MetricsUpdated                       // metrics_updated: ranks and communities were computed
)

// Change is a change of the usage graph.
type Change struct {
	Kind ChangeKind
	// From, To and Runs describe the edge of EdgeCreated and EdgeUpdated.
	From, To string
	Runs     int64
	// Nodes, Edges (pairs of tools) and Density describe the graph after the change, and
	// Communities the last computation.
	Nodes, Edges, Communities int
	Density                   float64
}

// maintainGraph writes runs, reloads, recomputes and purges the graph until ctx ends.
func (x *Index) maintainGraph(ctx context.Context) {
	m := &graphMaintenance{Index: x}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		wait := x.opts.FlushInterval
		if err := m.step(ctx, time.Now()); err != nil && ctx.Err() == nil {
			x.log.Warn("maintain the usage graph of tools; retrying", "error", err)
			wait = max(wait, retryDelay)
		}
		tick.Reset(wait)
	}
}

// graphMaintenance holds the times of the last maintenance steps.
type graphMaintenance struct {
	*Index
	reloaded, computed, purged time.Time
	computedNumber             uint64 // of the graph
}

// step does the maintenance that is due.
func (m *graphMaintenance) step(ctx context.Context, now time.Time) error {
	select {
	case m.writing <- struct{}{}:
		defer func() { <-m.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := m.flush(ctx); err != nil {
		return err
	}
	if now.Sub(m.purged) >= purgeInterval {
		if err := m.purge(ctx); err != nil {
			return err
		}
		m.purged, m.reloaded = now, time.Time{}
	}
	if now.Sub(m.reloaded) >= m.opts.ReloadInterval {
		if err := m.reload(ctx); err != nil {
			return err
		}
		m.reloaded = now
	}
	if g := m.graph.Load(); g.number != m.computedNumber && now.Sub(m.computed) >= m.opts.RecomputeInterval {
		number, err := m.recompute(ctx, g)
		if err != nil {
			return err
		}
		m.computed, m.computedNumber = now, number
	}
	return nil
}

// reload reads the graph from SQL, with the runs of other replicas.
func (x *Index) reload(ctx context.Context) error {
	edges, err := x.store.ToolEdges(ctx, x.opts.MaxEdges)
	if err != nil {
		return err
	}
	nodes, err := x.store.ToolNodes(ctx, 2*x.opts.MaxEdges)
	if err != nil {
		return err
	}
	old := x.graph.Load()
	if sameEdges(old.source, edges) {
		return nil
	}
	g := newGraph(edges, nodes, x.store.Now())
	g.number = old.number + 1
	x.graph.Store(g)
	x.opts.OnChange(g.change(GraphSynced))
	return nil
}

// sameEdges reports whether two lists have the same edges, in any order.
func sameEdges(a, b []models.ToolEdge) bool {
	if len(a) != len(b) {
		return false
	}
	has := make(map[models.ToolEdge]bool, len(a))
	for _, e := range a {
		has[e] = true
	}
	for _, e := range b {
		if !has[e] {
			return false
		}
	}
	return true
}

// apply updates the graph with written edges and publishes the changes.
func (x *Index) apply(all []writtenEdge) {
	old := x.graph.Load()
	edges := make(map[edge]models.ToolEdge, len(old.source)+len(all))
	for _, e := range old.source {
		edges[edge{e.From, e.To}] = e
	}
	for _, w := range all {
		edges[edge{w.From, w.To}] = w.ToolEdge
	}
	list := slices.SortedFunc(maps.Values(edges), func(a, b models.ToolEdge) int {
		return cmp.Or(b.LastUsed.Compare(a.LastUsed), cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
	})
	g := newGraph(list[:min(len(list), x.opts.MaxEdges)], old.stats, x.store.Now())
	g.number = old.number + 1
	x.graph.Store(g)
	for _, w := range all {
		c := g.change(EdgeUpdated)
		if w.created {
			c.Kind = EdgeCreated
		}
		c.From, c.To, c.Runs = w.From, w.To, w.Runs
		x.opts.OnChange(c)
	}
}

func (g *graph) change(k ChangeKind) Change {
	highest := -1
	for _, c := range g.community {
		highest = max(highest, c)
	}
	return Change{Kind: k, Nodes: len(g.ids), Edges: g.edges, Communities: highest + 1, Density: g.density}
}

// purge deletes unused edges, nodes and vectors, and edges over MaxEdges.
func (x *Index) purge(ctx context.Context) error {
	for _, purgeSome := range []func(tx *store.Tx, before time.Time) (int64, error){
		func(tx *store.Tx, before time.Time) (int64, error) { return tx.PurgeToolEdges(before, purgeBatch) },
		func(tx *store.Tx, _ time.Time) (int64, error) { return tx.TrimToolEdges(x.opts.MaxEdges, purgeBatch) },
		func(tx *store.Tx, before time.Time) (int64, error) { return tx.PurgeToolNodes(before, purgeBatch) },
		func(tx *store.Tx, before time.Time) (int64, error) { return tx.PurgeToolVectors(before, purgeBatch) },
	} {
		for n := int64(purgeBatch); n == purgeBatch; {
			err := x.store.Write(ctx, func(tx *store.Tx) (err error) {
				n, err = purgeSome(tx, tx.Now().Add(-x.opts.Retention))
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
