package toolsearch

import (
	"context"
	"slices"
	"sync"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

const (
	// MaxRun is the highest number of tool calls of a run, and maxDistinct the number of
	// different tools that count.
	MaxRun      = 10_000
	maxDistinct = 100
	// maxID is the longest id of a tool, in bytes.
	maxID = 256
	// window is the greatest distance between two tools of a run that counts as used together.
	window = 4
	// maxWritten is how many edges one transaction writes; a longer one would delay others.
	maxWritten = 500
)

// edge is a directed pair of tools.
type edge struct{ from, to string }

// pendingRuns adds up the runs that were recorded and not yet written.
type pendingRuns struct {
	mu    sync.Mutex
	edges map[edge]int64
	nodes map[string]*models.ToolNode
}

func (p *pendingRuns) reset() { p.edges, p.nodes = map[edge]int64{}, map[string]*models.ToolNode{} }

// drain returns the pending edges and nodes and removes them.
func (p *pendingRuns) drain() (map[edge]int64, map[string]*models.ToolNode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	edges, nodes := p.edges, p.nodes
	p.reset()
	return edges, nodes
}

func (p *pendingRuns) add(edges map[edge]int64, nodes map[string]*models.ToolNode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for e, n := range edges {
		p.edges[e] += n
	}
	for id, n := range nodes {
		if old := p.nodes[id]; old != nil {
			n.Runs, n.Failed = n.Runs+old.Runs, n.Failed+old.Failed
		}
		p.nodes[id] = n
	}
}

func (p *pendingRuns) full(limit int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.edges) >= limit || len(p.nodes) >= limit
}

// Record adds the tools of one run to the usage graph, in the order of their calls: a run of
// code, a workflow, or consecutive calls of one session. A successful run strengthens the edges
// between tools that are close to each other in it, once per pair; a failed run is only counted.
// Record returns before the run is written; a process that is killed loses the runs of the last
// flush interval. The error is errs.InvalidRequest for a run over a limit, and errs.Busy when
// too many runs are pending.
func (x *Index) Record(_ context.Context, tools []string, succeeded bool) error {
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
	if x.pending.full(x.opts.MaxPending) {
		return errs.New(errs.Busy, "too many runs are waiting to be written to the usage graph")
	}
	edges, nodes := map[edge]int64{}, map[string]*models.ToolNode{}
	for i, id := range distinct {
		if !succeeded {
			nodes[id] = &models.ToolNode{Tool: id, Failed: 1}
			continue
		}
		nodes[id] = &models.ToolNode{Tool: id, Runs: 1}
		for _, next := range distinct[i+1 : min(len(distinct), i+1+window)] {
			edges[edge{id, next}] = 1
		}
	}
	x.pending.add(edges, nodes)
	return nil
}

// Flush writes the pending runs and updates the graph. Runs that cannot be written before ctx
// ends stay pending.
func (x *Index) Flush(ctx context.Context) error {
	select {
	case x.writing <- struct{}{}:
		defer func() { <-x.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return x.flush(ctx)
}

// flush is Flush for a caller that holds writing.
func (x *Index) flush(ctx context.Context) error {
	edges, nodes := x.pending.drain()
	if len(nodes) == 0 {
		return nil
	}
	written, err := x.writeRuns(ctx, edges, nodes)
	if len(written) > 0 {
		x.apply(written)
	}
	if err != nil {
		x.pending.add(edges, nodes)
	}
	return err
}

// writeRuns writes edges and nodes in several transactions and removes from the maps what it has
// written. It returns the edges with their new totals.
func (x *Index) writeRuns(ctx context.Context, edges map[edge]int64, nodes map[string]*models.ToolNode) ([]writtenEdge, error) {
	var out []writtenEdge
	for len(edges) > 0 || len(nodes) > 0 {
		var batch []models.ToolEdge
		for e, n := range edges {
			if len(batch) == maxWritten {
				break
			}
			batch = append(batch, models.ToolEdge{From: e.from, To: e.to, Runs: n})
		}
		var tools []models.ToolNode
		for _, n := range nodes {
			if len(tools) == maxWritten {
				break
			}
			tools = append(tools, *n)
		}
		var totals []models.ToolEdge
		err := x.store.Write(ctx, func(tx *store.Tx) (err error) {
			if totals, err = tx.AddToolEdges(batch); err != nil {
				return err
			}
			return tx.AddToolRuns(tools)
		})
		if err != nil {
			return out, err
		}
		for i := range totals {
			key := edge{totals[i].From, totals[i].To}
			out = append(out, writtenEdge{totals[i], totals[i].Runs == edges[key]})
			delete(edges, key)
		}
		for i := range tools {
			delete(nodes, tools[i].Tool)
		}
	}
	return out, nil
}

// writtenEdge is an edge with its total in SQL.
type writtenEdge struct {
	models.ToolEdge
	created bool
}
