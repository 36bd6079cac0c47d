package toolsearch

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"
)

// UsageNode is a tool of the usage graph.
type UsageNode struct {
	ID        string
	Runs      int64   // the runs that used it
	Rank      float64 // PageRank, the highest is 1
	Community int     // -1 where it is unknown
}

// UsageEdge is a pair of tools that were used in one run, the first one earlier.
type UsageEdge struct {
	From, To string
	Runs     int64
	// Confidence is the share of the runs with one of the two tools that used both in this order, in 0…1.
	Confidence float64
}

// Usage is the usage graph at one moment.
type Usage struct {
	Nodes []UsageNode // the highest rank first
	Edges []UsageEdge
	// Total is the number of nodes before the limit.
	Total       int
	Communities int
	Density     float64
	At          time.Time
}

// Usage returns the usage graph of the tools that visible selects: at most limit, those of the highest rank, and the
// edges between them.
func (u *usageGraph) Usage(visible func(id string) bool, limit int) Usage {
	g := u.graph.Load()
	out := Usage{Density: g.density, At: g.at}
	runs := g.runs()
	communities := map[int]bool{}
	for i, id := range g.ids {
		if visible(id) {
			out.Nodes = append(out.Nodes, UsageNode{id, runs[id], g.rank[i], g.community[i]})
			communities[g.community[i]] = true
		}
	}
	delete(communities, -1)
	out.Total, out.Communities = len(out.Nodes), len(communities)
	slices.SortFunc(out.Nodes, func(a, b UsageNode) int { return cmp.Or(cmp.Compare(b.Rank, a.Rank), cmp.Compare(a.ID, b.ID)) })
	out.Nodes = out.Nodes[:min(limit, len(out.Nodes))]
	kept := map[string]bool{}
	for _, n := range out.Nodes {
		kept[n.ID] = true
	}
	for _, e := range g.source {
		if kept[e.From] && kept[e.To] {
			either := max(runs[e.From]+runs[e.To]-e.Runs, e.Runs, 1)
			out.Edges = append(out.Edges, UsageEdge{e.From, e.To, e.Runs, float64(e.Runs) / float64(either)})
		}
	}
	return out
}

// Path returns the edges from one tool to another whose product of confidences is the highest, whichever of two tools was
// used first, and that product. Without a path ok is false.
func (u Usage) Path(from, to string) (edges []UsageEdge, confidence float64, ok bool) {
	adjacent := map[string][]UsageEdge{}
	for _, e := range u.Edges {
		adjacent[e.From] = append(adjacent[e.From], e)
		adjacent[e.To] = append(adjacent[e.To], UsageEdge{e.To, e.From, e.Runs, e.Confidence})
	}
	reached, done := map[string]UsageEdge{}, map[string]bool{}
	queue := &nearest{{id: from}}
	for queue.Len() > 0 {
		at := heap.Pop(queue).(candidate) //nolint:forcetypeassert // the queue has no other type
		if done[at.id] {
			continue
		}
		done[at.id], reached[at.id] = true, at.by
		if at.id == to {
			for id := to; id != from; id = reached[id].From {
				edges = append(edges, reached[id])
			}
			slices.Reverse(edges)
			return edges, math.Exp(-at.cost), true
		}
		for _, e := range adjacent[at.id] {
			if !done[e.To] && e.Confidence > 0 {
				heap.Push(queue, candidate{e.To, at.cost - math.Log(e.Confidence), e})
			}
		}
	}
	return nil, 0, false
}

// candidate is a tool that a path reaches by an edge, with the negative logarithm of the confidence of that path.
type candidate struct {
	id   string
	cost float64
	by   UsageEdge
}

// nearest is a heap of candidates, the most confident first.
type nearest []candidate

func (q nearest) Len() int           { return len(q) }
func (q nearest) Less(i, j int) bool { return q[i].cost < q[j].cost }
func (q nearest) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push implements heap.Interface.
func (q *nearest) Push(x any) { *q = append(*q, x.(candidate)) } //nolint:forcetypeassert // the queue has no other type

// Pop implements heap.Interface.
func (q *nearest) Pop() any {
	old := *q
	last := old[len(old)-1]
	*q = old[:len(old)-1]
	return last
}
