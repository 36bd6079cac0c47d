package toolsearch

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/toolsearch/graphstore"
	"comet/store"
)

const (
	// MaxRun limits the tool calls of a run, and maxDistinct the different tools that count.
	MaxRun      = 10_000
	maxDistinct = 100
	// maxID is the longest id of a tool, in bytes.
	maxID = 256
	// window is the greatest distance between two tools of a run that counts as used together.
	window = 4
	// maxWritten is how many edges one transaction writes; a longer one would delay others.
	maxWritten = 500
	// reloadInterval is how often other replicas' runs are read, purgeInterval how often edges end.
	reloadInterval, purgeInterval = time.Minute, time.Hour
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

// Change is a change of the usage graph. Its JSON is the data of the events.
type Change struct {
	Kind ChangeKind `json:"-"`
	// From, To and Runs describe the edge of EdgeCreated and EdgeUpdated.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	Runs int64  `json:"runs,omitempty"`
	// Nodes, Edges (pairs of tools), Density and Communities describe the graph after it.
	Nodes       int     `json:"nodes"`
	Edges       int     `json:"edges"`
	Communities int     `json:"communities,omitempty"`
	Density     float64 `json:"density"`
}

// usageGraph is the graph of tools that were used together, of all replicas, stored in SQL.
type usageGraph struct {
	store *store.Store
	opts  *Options
	graph atomic.Pointer[graph]
	// pending are the runs that are not written yet; writing is held while they are written.
	pending pendingRuns
	writing *semaphore.Weighted

	// The times of the last maintenance steps, and the number of the graph that was computed.
	reloaded, computed, purged time.Time
	computedNumber             uint64
}

func newUsageGraph(db *store.Store, opts *Options) *usageGraph {
	u := &usageGraph{store: db, opts: opts, writing: semaphore.NewWeighted(1)}
	u.pending.reset()
	u.graph.Store(newGraph(nil, nil, time.Time{}))
	return u
}

type edge struct{ from, to string }

func compareEdges(a, b graphstore.Edge) int {
	return cmp.Or(cmp.Compare(a.From, b.From), cmp.Compare(a.To, b.To))
}

type pendingRuns struct {
	mu    sync.Mutex
	edges map[edge]int64
	nodes map[string]graphstore.Node
}

func (p *pendingRuns) reset() {
	p.edges, p.nodes = map[edge]int64{}, map[string]graphstore.Node{}
}

// drain returns the pending edges, sorted, and nodes, and removes them.
func (p *pendingRuns) drain() (edges []graphstore.Edge, nodes []graphstore.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e, n := range p.edges {
		edges = append(edges, graphstore.Edge{From: e.from, To: e.to, Runs: n})
	}
	slices.SortFunc(edges, compareEdges)
	nodes = slices.Collect(maps.Values(p.nodes))
	p.reset()
	return edges, nodes
}

func (p *pendingRuns) add(edges []graphstore.Edge, nodes []graphstore.Node) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range edges {
		p.edges[edge{e.From, e.To}] += e.Runs
	}
	for _, n := range nodes {
		old := p.nodes[n.Tool]
		n.Runs += old.Runs
		p.nodes[n.Tool] = n
	}
}

func (p *pendingRuns) full(limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.edges) >= limit || len(p.nodes) >= limit
}

// Record adds the tools of one run to the usage graph, in the order of their calls: a run of
// code, a workflow, or consecutive calls of one session, that succeeded. It strengthens the edges
// between tools that are close to each other in it, once per pair. Record returns before the run is
// written; a process that is killed loses the runs of the last flush interval. The error is
// errs.InvalidRequest for a run over a limit, and errs.Busy when too many runs are pending.
func (u *usageGraph) Record(tools []string) error {
	if len(tools) > MaxRun {
		return errs.New(errs.InvalidRequest, "the run has %d calls, at most %d are allowed", len(tools), MaxRun)
	}
	distinct := make([]string, 0, min(len(tools), maxDistinct))
	for _, id := range tools {
		if id == "" || len(id) > maxID {
			return errs.New(errs.InvalidRequest, "the id of a tool must have 1 to %d bytes", maxID)
		}
		if len(distinct) < maxDistinct && !slices.Contains(distinct, id) {
			distinct = append(distinct, id)
		}
	}
	if u.pending.full(u.opts.MaxPending) {
		return errs.New(errs.Busy, "too many runs are waiting to be written to the usage graph")
	}
	var edges []graphstore.Edge
	var nodes []graphstore.Node
	for i, id := range distinct {
		nodes = append(nodes, graphstore.Node{Tool: id, Runs: 1})
		for _, next := range distinct[i+1 : min(len(distinct), i+1+window)] {
			edges = append(edges, graphstore.Edge{From: id, To: next, Runs: 1})
		}
	}
	u.pending.add(edges, nodes)
	return nil
}

// Flush writes the pending runs and updates the graph. What ctx prevents stays pending.
func (u *usageGraph) Flush(ctx context.Context) error {
	if err := u.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer u.writing.Release(1)
	return u.flush(ctx)
}

// flush is Flush for a caller that holds writing. It writes in several transactions.
func (u *usageGraph) flush(ctx context.Context) error {
	edges, nodes := u.pending.drain()
	var written []writtenEdge
	var counted []graphstore.Node
	var err error
	for len(edges)+len(nodes) > 0 {
		e, n := edges[:min(len(edges), maxWritten)], nodes[:min(len(nodes), maxWritten)]
		var totals []graphstore.Edge
		err = u.store.Write(ctx, func(tx *store.Tx) (err error) {
			if totals, err = graphstore.AddEdges(tx, e); err != nil {
				return err
			}
			return graphstore.AddRuns(tx, n)
		})
		if err != nil {
			u.pending.add(edges, nodes)
			break
		}
		for i, total := range totals { // in the order of e, which is sorted
			written = append(written, writtenEdge{total, total.Runs == e[i].Runs})
		}
		counted = append(counted, n...)
		edges, nodes = edges[len(e):], nodes[len(n):]
	}
	if len(written) > 0 {
		u.apply(written, counted)
	}
	return err
}

// writtenEdge is an edge with its total in SQL.
type writtenEdge struct {
	graphstore.Edge
	created bool
}

// maintain writes runs, reloads, recomputes and purges the graph until ctx ends.
func (u *usageGraph) maintain(ctx context.Context) {
	opts := background.PollOptions{Task: "maintaining the usage graph of tools", Logger: u.opts.Logger}
	background.NewPollLoop(opts, func(ctx context.Context) (time.Duration, error) {
		return u.opts.FlushInterval, u.step(ctx, time.Now())
	}).Run(ctx)
}

func (u *usageGraph) step(ctx context.Context, now time.Time) error {
	if err := u.writing.Acquire(ctx, 1); err != nil {
		return err
	}
	defer u.writing.Release(1)
	if err := u.flush(ctx); err != nil {
		return err
	}
	if now.Sub(u.purged) >= purgeInterval {
		if err := u.purge(ctx); err != nil {
			return err
		}
		u.purged, u.reloaded = now, time.Time{}
	}
	if now.Sub(u.reloaded) >= reloadInterval {
		if err := u.reload(ctx); err != nil {
			return err
		}
		u.reloaded = now
	}
	if g := u.graph.Load(); g.number != u.computedNumber && now.Sub(u.computed) >= u.opts.RecomputeInterval {
		number, err := u.recompute(ctx, g)
		if err != nil {
			return err
		}
		u.computed, u.computedNumber = now, number
	}
	return nil
}

func (u *usageGraph) replace(g *graph) {
	g.number = u.graph.Load().number + 1
	u.graph.Store(g)
}

// reload reads the graph from SQL, with the runs of other replicas.
func (u *usageGraph) reload(ctx context.Context) error {
	edges, err := graphstore.Edges(ctx, u.store, u.opts.MaxEdges)
	if err != nil {
		return err
	}
	nodes, err := graphstore.Nodes(ctx, u.store, 2*u.opts.MaxEdges)
	if err != nil {
		return err
	}
	if slices.Equal(sortedEdges(u.graph.Load().source), sortedEdges(edges)) {
		return nil
	}
	g := newGraph(edges, nodes, u.store.Now())
	u.replace(g)
	u.opts.OnChange(g.change(GraphSynced))
	return nil
}

func sortedEdges(list []graphstore.Edge) []graphstore.Edge {
	return slices.SortedFunc(slices.Values(list), compareEdges)
}

// apply updates the graph with written edges and runs of tools, and publishes the changes.
func (u *usageGraph) apply(all []writtenEdge, counted []graphstore.Node) {
	old := u.graph.Load()
	edges := make(map[edge]graphstore.Edge, len(old.source)+len(all))
	for _, e := range old.source {
		edges[edge{e.From, e.To}] = e
	}
	for _, w := range all {
		edges[edge{w.From, w.To}] = w.Edge
	}
	list := slices.SortedFunc(maps.Values(edges), func(a, b graphstore.Edge) int {
		return cmp.Or(b.LastUsed.Compare(a.LastUsed), compareEdges(a, b))
	})
	g := newGraph(list[:min(len(list), u.opts.MaxEdges)], old.withRuns(counted), u.store.Now())
	u.replace(g)
	for _, w := range all {
		c := g.change(EdgeUpdated)
		if w.created {
			c.Kind = EdgeCreated
		}
		c.From, c.To, c.Runs = w.From, w.To, w.Runs
		u.opts.OnChange(c)
	}
}

// recompute computes and writes ranks and communities, and returns the number of their graph.
func (u *usageGraph) recompute(ctx context.Context, g *graph) (uint64, error) {
	nodes := g.computeStats()
	for batch := range slices.Chunk(nodes, maxWritten) {
		if err := u.store.Write(ctx, func(tx *store.Tx) error { return graphstore.SetRanks(tx, batch) }); err != nil {
			return 0, err
		}
	}
	next := *g
	next.setStats(nodes)
	u.replace(&next)
	u.opts.OnChange(next.change(MetricsUpdated))
	return next.number, nil
}

func (g *graph) change(k ChangeKind) Change {
	highest := -1
	for _, c := range g.community {
		highest = max(highest, c)
	}
	return Change{Kind: k, Nodes: len(g.ids), Edges: g.edges, Communities: highest + 1, Density: g.density}
}

// purge deletes unused edges, nodes and vectors, and edges over MaxEdges.
func (u *usageGraph) purge(ctx context.Context) error {
	before := u.store.Now().Add(-retention)
	return u.store.InBatches(ctx,
		func(tx *store.Tx, limit int) (int64, error) { return graphstore.PurgeEdges(tx, before, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return graphstore.TrimEdges(tx, u.opts.MaxEdges, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return graphstore.PurgeNodes(tx, before, limit) },
		func(tx *store.Tx, limit int) (int64, error) { return graphstore.PurgeVectors(tx, before, limit) },
	)
}
