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
	// purgeEvery is how often edges are looked for that nobody uses any more, and
	// purgeBatch how many one transaction deletes.
	purgeEvery = time.Hour
	purgeBatch = 1000
	// retry is after what time it is tried again to write or read where that has failed.
	retry = 5 * time.Second
)

// ChangeKind says what became of the graph.
type ChangeKind uint8

// What happens to the graph. The gateway tells it as events of the same names.
const (
	EdgeCreated    ChangeKind = iota + 1 // edge_created
	EdgeUpdated                          // edge_updated
	GraphSynced                          // graph_synced: it was read from SQL
	MetricsUpdated                       // metrics_updated: ranks and communities are new
)

// Change is something that became of the graph.
type Change struct {
	Kind ChangeKind
	// From, To and Runs are of the edge.
	From, To string
	Runs     int64
	// Nodes, Edges (pairs of tools) and Density are of the graph as it is then, and
	// Communities of its last computation.
	Nodes, Edges, Communities int
	Density                   float64
}

// keepGraph keeps the graph until ctx ends.
func (x *Index) keepGraph(ctx context.Context) {
	k := &keeper{Index: x}
	tick := time.NewTimer(0)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		wait := x.opts.Every
		if err := k.step(ctx, time.Now()); err != nil && ctx.Err() == nil {
			x.log.Warn("the usage graph of tools cannot be kept, which is tried again", "error", err)
			wait = max(wait, retry)
		}
		tick.Reset(wait)
	}
}

// keeper is when what was done last.
type keeper struct {
	*Index
	reloaded, computed, purged time.Time
	computedOf                 uint64 // the number of the graph
}

// step does what is due.
func (k *keeper) step(ctx context.Context, now time.Time) error {
	select {
	case k.writing <- struct{}{}:
		defer func() { <-k.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := k.flush(ctx); err != nil {
		return err
	}
	if now.Sub(k.purged) >= purgeEvery {
		if err := k.purge(ctx); err != nil {
			return err
		}
		k.purged, k.reloaded = now, time.Time{}
	}
	if now.Sub(k.reloaded) >= k.opts.Reload {
		if err := k.reload(ctx); err != nil {
			return err
		}
		k.reloaded = now
	}
	if g := k.graph.Load(); g.number != k.computedOf && now.Sub(k.computed) >= k.opts.Recompute {
		of, err := k.recompute(ctx, g)
		if err != nil {
			return err
		}
		k.computed, k.computedOf = now, of
	}
	return nil
}

// reload reads the graph from SQL, with what other replicas have added.
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
	x.opts.Changed(g.change(GraphSynced))
	return nil
}

// sameEdges reports whether two lists have the same edges, in whatever order.
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

// follow has the graph here follow what was written, and tells of it.
func (x *Index) follow(all []written) {
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
		if w.fresh {
			c.Kind = EdgeCreated
		}
		c.From, c.To, c.Runs = w.From, w.To, w.Runs
		x.opts.Changed(c)
	}
}

func (g *graph) change(k ChangeKind) Change {
	most := -1
	for _, c := range g.community {
		most = max(most, c)
	}
	return Change{Kind: k, Nodes: len(g.ids), Edges: g.edges, Communities: most + 1, Density: g.density}
}

// purge deletes what nobody uses any more, and what is too much.
func (x *Index) purge(ctx context.Context) error {
	for _, some := range []func(tx *store.Tx, before time.Time) (int64, error){
		func(tx *store.Tx, before time.Time) (int64, error) { return tx.PurgeToolEdges(before, purgeBatch) },
		func(tx *store.Tx, _ time.Time) (int64, error) { return tx.TrimToolEdges(x.opts.MaxEdges, purgeBatch) },
		func(tx *store.Tx, before time.Time) (int64, error) { return tx.PurgeToolNodes(before, purgeBatch) },
		func(tx *store.Tx, before time.Time) (int64, error) { return tx.PurgeToolVectors(before, purgeBatch) },
	} {
		for n := int64(purgeBatch); n == purgeBatch; {
			err := x.store.Write(ctx, func(tx *store.Tx) (err error) {
				n, err = some(tx, tx.Now().Add(-x.opts.Keep))
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}
