package toolsearch

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/graph/community"
	"gonum.org/v1/gonum/graph/network"
	"gonum.org/v1/gonum/graph/simple"

	"comet/models"
	"comet/store"
)

// recompute computes ranks and communities of a graph anew, keeps them, and returns the
// number of the graph that has them.
func (x *Index) recompute(ctx context.Context, g *graph) (uint64, error) {
	nodes := g.compute()
	for from := 0; from < len(nodes); from += maxWritten {
		some := nodes[from:min(len(nodes), from+maxWritten)]
		if err := x.store.Write(ctx, func(tx *store.Tx) error { return tx.SetToolRanks(some) }); err != nil {
			return 0, err
		}
	}
	next := *g
	next.number++
	next.setStats(nodes)
	x.graph.Store(&next)
	x.opts.Changed(next.change(MetricsUpdated))
	return next.number, nil
}

// compute returns the PageRank of each tool, and its community by Louvain's method: the
// communities are numbered by their first tool, so the same graph has the same ones.
func (g *graph) compute() []models.ToolNode {
	out := make([]models.ToolNode, len(g.ids))
	if len(out) == 0 {
		return out
	}
	for i, rank := range g.pageRank() {
		out[i] = models.ToolNode{Tool: g.ids[i], Rank: rank}
	}
	for number, members := range g.communities() {
		for _, i := range members {
			out[i].Community = number
		}
	}
	return out
}

func (g *graph) pageRank() []float64 {
	const damping, tolerance = 0.85, 1e-9
	directed := simple.NewWeightedDirectedGraph(0, 0)
	for i := range g.ids {
		directed.AddNode(simple.Node(i))
	}
	for i := range g.source {
		e := &g.source[i]
		if w := weight(e, g.at); w > 0 && e.From != e.To {
			directed.SetWeightedEdge(simple.WeightedEdge{F: simple.Node(g.nodes[e.From]), T: simple.Node(g.nodes[e.To]), W: w})
		}
	}
	out := make([]float64, len(g.ids))
	for i, rank := range network.PageRankSparse(directed, damping, tolerance) {
		if !math.IsNaN(rank) {
			out[i] = math.Round(rank*1e6) / 1e6 // it begins somewhere by chance
		}
	}
	return out
}

func (g *graph) communities() [][]int64 {
	undirected := simple.NewWeightedUndirectedGraph(0, 0)
	for i := range g.ids {
		undirected.AddNode(simple.Node(i))
	}
	for i, all := range g.adjacent {
		for _, n := range all {
			if int32(i) < n.node && n.weight > 0 {
				undirected.SetWeightedEdge(simple.WeightedEdge{F: simple.Node(i), T: simple.Node(n.node), W: n.weight})
			}
		}
	}
	var out [][]int64
	for _, members := range community.Modularize(undirected, 1, rand.NewPCG(1, 1)).Communities() {
		ids := make([]int64, 0, len(members))
		for _, m := range members {
			ids = append(ids, m.ID())
		}
		slices.Sort(ids)
		out = append(out, ids)
	}
	slices.SortFunc(out, func(a, b []int64) int { return cmp.Compare(a[0], b[0]) })
	return out
}
