package toolsearch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"comet/internal/toolsearch/graphstore"
)

const (
	// halfLife is the time after which an unused edge has half its weight.
	halfLife = 30 * 24 * time.Hour
	// halfWeight is the weight at which an edge has half of the highest proximity.
	halfWeight = 2
	// Shares of the proximity of two tools: they were used together, they were used with the
	// same tools, and the other one is central in a community of both.
	directShare, commonShare, centralShare = 0.6, 0.3, 0.1
)

// neighbour is a tool that was used together with another one; near is its proximity in 0…1.
type neighbour struct {
	node   int32
	id     string
	weight float64
	near   float64
}

// graph is the usage graph at one moment. It is read only. Edges count in both directions here.
type graph struct {
	number    uint64
	at        time.Time // of the weights
	source    []graphstore.Edge
	stats     []graphstore.Node
	ids       []string // sorted
	nodes     map[string]int32
	adjacent  [][]neighbour // by id
	nearest   [][]neighbour // the same, the nearest first
	edges     int
	density   float64
	rank      []float64 // PageRank, the highest is 1
	community []int     // -1 where it is unknown
}

// newGraph returns the graph of edges. stats may lack nodes and may have others.
func newGraph(edges []graphstore.Edge, stats []graphstore.Node, now time.Time) *graph {
	g := &graph{at: now, source: edges, nodes: map[string]int32{}}
	for i := range edges {
		g.ids = append(g.ids, edges[i].From, edges[i].To)
	}
	slices.Sort(g.ids)
	g.ids = slices.Compact(g.ids)
	for i, id := range g.ids {
		g.nodes[id] = int32(i)
	}
	weights := make([]map[int32]float64, len(g.ids))
	for i := range edges {
		from, to, w := g.nodes[edges[i].From], g.nodes[edges[i].To], edgeWeight(&edges[i], now)
		for _, pair := range [][2]int32{{from, to}, {to, from}} {
			if weights[pair[0]] == nil {
				weights[pair[0]] = map[int32]float64{}
			}
			weights[pair[0]][pair[1]] += w
		}
	}
	g.adjacent = make([][]neighbour, len(g.ids))
	for i, all := range weights {
		for to, w := range all {
			g.adjacent[i] = append(g.adjacent[i], neighbour{node: to, id: g.ids[to], weight: w})
		}
		slices.SortFunc(g.adjacent[i], func(a, b neighbour) int { return cmp.Compare(a.node, b.node) })
		g.edges += len(all)
	}
	g.edges /= 2
	if n := float64(len(g.ids)); n > 1 {
		g.density = float64(g.edges) / (n * (n - 1) / 2)
	}
	g.setStats(stats)
	return g
}

// edgeWeight grows with the logarithm of the runs and halves with each unused halfLife.
func edgeWeight(e *graphstore.Edge, now time.Time) float64 {
	age := max(now.Sub(e.LastUsed), 0)
	return math.Log2(1+float64(e.Runs)) * math.Exp2(-float64(age)/float64(halfLife))
}

// setStats sets ranks and communities and sorts the neighbours by proximity.
func (g *graph) setStats(stats []graphstore.Node) {
	g.stats = stats
	g.rank, g.community = make([]float64, len(g.ids)), make([]int, len(g.ids))
	for i := range g.community {
		g.community[i] = -1
	}
	highest := 0.0
	for _, s := range stats {
		if i, ok := g.nodes[s.Tool]; ok {
			g.rank[i], g.community[i] = s.Rank, s.Community
			highest = max(highest, s.Rank)
		}
	}
	for i := range g.rank {
		if highest > 0 {
			g.rank[i] /= highest
		}
	}
	g.nearest = make([][]neighbour, len(g.ids))
	for i, all := range g.adjacent {
		list := slices.Clone(all)
		for j := range list {
			list[j].near = g.proximity(int32(i), list[j].node)
		}
		slices.SortFunc(list, func(a, b neighbour) int { return cmp.Or(cmp.Compare(b.near, a.near), cmp.Compare(a.node, b.node)) })
		g.nearest[i] = list
	}
}

// runs returns the number of runs of each tool.
func (g *graph) runs() map[string]int64 {
	out := make(map[string]int64, len(g.stats))
	for _, s := range g.stats {
		out[s.Tool] = s.Runs
	}
	return out
}

// withRuns returns the statistics of the graph after further runs of tools.
func (g *graph) withRuns(more []graphstore.Node) []graphstore.Node {
	out, at := slices.Clone(g.stats), make(map[string]int, len(g.stats))
	for i, s := range out {
		at[s.Tool] = i
	}
	for _, n := range more {
		if i, ok := at[n.Tool]; ok {
			out[i].Runs += n.Runs
		} else {
			out = append(out, graphstore.Node{Tool: n.Tool, Runs: n.Runs, Community: -1})
		}
	}
	return out
}

// alpha returns the weight of the text for a query with a context: max(0.5, 1 − 2·density).
func (g *graph) alpha() float64 { return max(0.5, 1-2*g.density) }

func (g *graph) known(tools []string) (out []int32) {
	for _, id := range tools {
		if i, ok := g.nodes[id]; ok && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out
}

// neighbours returns the tools that were used together with a tool, the nearest first.
func (g *graph) neighbours(id string) []neighbour {
	i, ok := g.nodes[id]
	if !ok {
		return nil
	}
	return g.nearest[i]
}

// PageRank returns the rank of a tool in the usage graph, in 0…1.
func (u *usageGraph) PageRank(id string) float64 {
	g := u.graph.Load()
	if i, ok := g.nodes[id]; ok {
		return g.rank[i]
	}
	return 0
}

// Ranked reports whether the rank of a tool has been computed. It is true for a tool that is not in the graph.
func (u *usageGraph) Ranked(id string) bool {
	g := u.graph.Load()
	i, ok := g.nodes[id]
	return !ok || g.community[i] >= 0
}

// Hops returns the length of the shortest path between two tools in the usage graph, 0 if no path has at most most edges.
func (u *usageGraph) Hops(from, to string, most int) int {
	g := u.graph.Load()
	start, known := g.nodes[from]
	end, ok := g.nodes[to]
	if !known || !ok || start == end {
		return 0
	}
	seen, layer := map[int32]bool{start: true}, []int32{start}
	for hops := 1; hops <= most; hops++ {
		var next []int32
		for _, i := range layer {
			for _, n := range g.adjacent[i] {
				if n.node == end {
					return hops
				}
				if !seen[n.node] {
					seen[n.node] = true
					next = append(next, n.node)
				}
			}
		}
		layer = next
	}
	return 0
}

// near returns the proximity of a tool to a context, in 0…1. Each tool of the context that is
// near adds to it, and one that is far takes nothing away.
func (g *graph) near(context []int32, id string) float64 {
	i, ok := g.nodes[id]
	if !ok {
		return 0
	}
	far := 1.0
	for _, c := range context {
		if c != i {
			far *= 1 - g.proximity(c, i)
		}
	}
	return 1 - far
}

// proximity returns how near tool b is to tool a, in 0…1.
func (g *graph) proximity(a, b int32) float64 {
	near := commonShare * g.adamicAdar(a, b)
	if w := g.weight(a, b); w > 0 {
		near += directShare * w / (w + halfWeight)
	}
	if g.community[a] >= 0 && g.community[a] == g.community[b] {
		near += centralShare * g.rank[b]
	}
	return near
}

func (g *graph) weight(a, b int32) float64 {
	list := g.adjacent[a]
	i, ok := slices.BinarySearchFunc(list, b, func(n neighbour, node int32) int { return cmp.Compare(n.node, node) })
	if !ok {
		return 0
	}
	return list[i].weight
}

// adamicAdar returns the Adamic-Adar index of two tools, mapped to 0…1: common neighbours
// count, and one that is used with many tools counts less.
func (g *graph) adamicAdar(a, b int32) float64 {
	one, two := g.adjacent[a], g.adjacent[b]
	sum := 0.0
	for len(one) > 0 && len(two) > 0 {
		switch d := one[0].node - two[0].node; {
		case d < 0:
			one = one[1:]
		case d > 0:
			two = two[1:]
		default:
			sum += 1 / math.Log(float64(len(g.adjacent[one[0].node]))) // at least 2: these two
			one, two = one[1:], two[1:]
		}
	}
	return sum / (1 + sum)
}

// computeStats returns the PageRank of each tool and its community by Louvain's method.
// Communities are numbered by their first tool, so the same graph always has the same ones.
func (g *graph) computeStats() []graphstore.Node {
	out := make([]graphstore.Node, len(g.ids))
	if len(out) == 0 {
		return out
	}
	runs := g.runs()
	for i, rank := range g.pageRank() {
		out[i] = graphstore.Node{Tool: g.ids[i], Runs: runs[g.ids[i]], Rank: rank}
	}
	for i, number := range louvain(g.adjacent) {
		out[i].Community = number
	}
	return out
}

// pageRank returns the PageRank of each tool; the ranks sum to 1. A tool without edges to others passes its
// rank to all tools.
func (g *graph) pageRank() []float64 {
	const damping, tolerance, maxRounds = 0.85, 1e-9, 1000
	n := float64(len(g.ids))
	links, sums := make([][]neighbour, len(g.ids)), make([]float64, len(g.ids)) // tools used after each tool, and their weights
	for i := range g.source {
		e := &g.source[i]
		if w := edgeWeight(e, g.at); w > 0 && e.From != e.To {
			from := g.nodes[e.From]
			links[from] = append(links[from], neighbour{node: g.nodes[e.To], weight: w})
			sums[from] += w
		}
	}
	rank, change := slices.Repeat([]float64{1 / n}, len(g.ids)), math.Inf(1)
	for round := 0; round < maxRounds && change > tolerance; round++ {
		shared := 1 - damping
		for i, sum := range sums {
			if sum == 0 {
				shared += damping * rank[i]
			}
		}
		next := slices.Repeat([]float64{shared / n}, len(g.ids))
		for from, all := range links {
			for _, to := range all {
				next[to.node] += damping * rank[from] * to.weight / sums[from]
			}
		}
		change = 0
		for i := range next {
			change += math.Abs(next[i] - rank[i])
		}
		rank = next
	}
	return rank
}
