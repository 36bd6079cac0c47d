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
	// MaxRun is how many calls of tools one run may be recorded with, and maxDistinct how
	// many different tools of them count.
	MaxRun      = 10_000
	maxDistinct = 100
	// maxID is the longest id of a tool, in bytes.
	maxID = 256
	// window is how far apart two tools of a run may stand to have been used together.
	window = 4
	// maxWritten is how many edges one transaction writes, which keeps others waiting.
	maxWritten = 500
)

// edge is the two tools of one.
type edge struct{ from, to string }

// pending is what was recorded and is not written yet.
type pending struct {
	mu    sync.Mutex
	edges map[edge]int64
	nodes map[string]*models.ToolNode
}

func (p *pending) init() { p.edges, p.nodes = map[edge]int64{}, map[string]*models.ToolNode{} }

// take returns what is pending and leaves nothing.
func (p *pending) take() (map[edge]int64, map[string]*models.ToolNode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	edges, nodes := p.edges, p.nodes
	p.init()
	return edges, nodes
}

// add adds to what is pending.
func (p *pending) add(edges map[edge]int64, nodes map[string]*models.ToolNode) {
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

func (p *pending) full(most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.edges) >= most || len(p.nodes) >= most
}

// Record notes the tools of one run in the order of their calls: a run of code, a workflow,
// or consecutive calls of one session. A run that succeeded strengthens the edges between
// tools that stand near each other in it, once each, however often they were called; one
// that failed is only counted. It does not wait: what was recorded is written soon, and a
// process that is killed loses the last moment of it. The error is errs.InvalidRequest for
// a run over a limit, and errs.Busy where too many wait to be written.
func (x *Index) Record(_ context.Context, tools []string, succeeded bool) error {
	if len(tools) > MaxRun {
		return errs.New(errs.InvalidRequest, "the run has %d calls, the most is %d", len(tools), MaxRun)
	}
	distinct := make([]string, 0, min(len(tools), maxDistinct))
	for _, id := range tools {
		if id == "" || len(id) > maxID {
			return errs.New(errs.InvalidRequest, "the id of a tool has between 1 and %d bytes", maxID)
		}
		if len(distinct) < maxDistinct && !slices.Contains(distinct, id) {
			distinct = append(distinct, id)
		}
	}
	if x.pending.full(x.opts.MaxPending) {
		return errs.New(errs.Busy, "too many runs wait to be written to the usage graph")
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

// Flush writes the runs that wait, and has the graph follow. Where that fails, or ctx ends
// before it is their turn, they go on waiting.
func (x *Index) Flush(ctx context.Context) error {
	select {
	case x.writing <- struct{}{}:
		defer func() { <-x.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return x.flush(ctx)
}

// flush is Flush for whoever may write.
func (x *Index) flush(ctx context.Context) error {
	edges, nodes := x.pending.take()
	if len(nodes) == 0 {
		return nil
	}
	written, err := x.write(ctx, edges, nodes)
	if len(written) > 0 {
		x.follow(written)
	}
	if err != nil {
		x.pending.add(edges, nodes)
	}
	return err
}

// write writes in several transactions, and takes from edges and nodes what it has
// written. It returns the edges as they are then.
func (x *Index) write(ctx context.Context, edges map[edge]int64, nodes map[string]*models.ToolNode) ([]written, error) {
	var out []written
	for len(edges) > 0 || len(nodes) > 0 {
		var some []models.ToolEdge
		for e, n := range edges {
			if len(some) == maxWritten {
				break
			}
			some = append(some, models.ToolEdge{From: e.from, To: e.to, Runs: n})
		}
		var tools []models.ToolNode
		for _, n := range nodes {
			if len(tools) == maxWritten {
				break
			}
			tools = append(tools, *n)
		}
		var now []models.ToolEdge
		err := x.store.Write(ctx, func(tx *store.Tx) (err error) {
			if now, err = tx.AddToolEdges(some); err != nil {
				return err
			}
			return tx.AddToolRuns(tools)
		})
		if err != nil {
			return out, err
		}
		for i := range now {
			key := edge{now[i].From, now[i].To}
			out = append(out, written{now[i], now[i].Runs == edges[key]})
			delete(edges, key)
		}
		for i := range tools {
			delete(nodes, tools[i].Tool)
		}
	}
	return out, nil
}

// written is an edge as it is in SQL, and whether it is new there.
type written struct {
	models.ToolEdge
	fresh bool
}
