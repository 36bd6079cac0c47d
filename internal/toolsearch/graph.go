package toolsearch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"comet/models"
)

const (
	// halfLife is after what time an edge that is not used counts half.
	halfLife = 30 * 24 * time.Hour
	// half is the weight at which an edge counts half of what any edge can.
	half = 2
	// direct, common and central are what makes two tools near: that they were used
	// together, that they were used with the same ones, and that the other is the centre of
	// a community of both.
	direct, common, central = 0.6, 0.3, 0.1
)

// neighbour is a tool that was used together with another, and how near it is, in 0…1.
type neighbour struct {
	node   int32
	id     string
	weight float64
	near   float64
}

// graph is which tools were used together, at one moment. It is read only. Edges have a
// direction in SQL, and count in both here.
type graph struct {
	number    uint64
	at        time.Time // its weights are of then
	source    []models.ToolEdge
	stats     []models.ToolNode
	ids       []string // sorted
	nodes     map[string]int32
	adjacent  [][]neighbour // by id; neighbours() has the nearest first
	nearest   [][]neighbour
	edges     int
	density   float64
	rank      []float64 // PageRank, the highest is 1
	community []int     // -1 for none known
}

// newGraph makes the graph of edges. stats may lack nodes, and have further ones.
func newGraph(edges []models.ToolEdge, stats []models.ToolNode, now time.Time) *graph {
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
		from, to, w := g.nodes[edges[i].From], g.nodes[edges[i].To], weight(&edges[i], now)
		for _, way := range [][2]int32{{from, to}, {to, from}} {
			if weights[way[0]] == nil {
				weights[way[0]] = map[int32]float64{}
			}
			weights[way[0]][way[1]] += w
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

// weight is what an edge counts: many runs count more than few, but a loop of ten thousand
// not a thousand times as much, and what has not been used for long less.
func weight(e *models.ToolEdge, now time.Time) float64 {
	age := max(now.Sub(e.LastUsed), 0)
	return math.Log2(1+float64(e.Runs)) * math.Exp2(-float64(age)/float64(halfLife))
}

// setStats takes ranks and communities, and orders the neighbours with them.
func (g *graph) setStats(stats []models.ToolNode) {
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
			list[j].near = g.pair(int32(i), list[j].node)
		}
		slices.SortFunc(list, func(a, b neighbour) int { return cmp.Or(cmp.Compare(b.near, a.near), cmp.Compare(a.node, b.node)) })
		g.nearest[i] = list
	}
}

// alpha is how much the text counts where a context is known (decisions, MCP gateway): the
// more of the graph there is, the less.
func (g *graph) alpha() float64 { return max(0.5, 1-2*g.density) }

// known returns those of the tools that the graph has.
func (g *graph) known(tools []string) (out []int32) {
	for _, id := range tools {
		if i, ok := g.nodes[id]; ok && !slices.Contains(out, i) {
			out = append(out, i)
		}
	}
	return out
}

// neighbours returns the tools that one was used with, the nearest first.
func (g *graph) neighbours(id string) []neighbour {
	i, ok := g.nodes[id]
	if !ok {
		return nil
	}
	return g.nearest[i]
}

// near is how near a tool is to any of a context, in 0…1. Several that are near count more
// than one, and those that are far take nothing away.
func (g *graph) near(context []int32, id string) float64 {
	i, ok := g.nodes[id]
	if !ok {
		return 0
	}
	far := 1.0
	for _, c := range context {
		if c != i {
			far *= 1 - g.pair(c, i)
		}
	}
	return 1 - far
}

// pair is how near two tools are, in 0…1.
func (g *graph) pair(a, b int32) float64 {
	near := common * g.adamicAdar(a, b)
	if w := g.weight(a, b); w > 0 {
		near += direct * w / (w + half)
	}
	if g.community[a] >= 0 && g.community[a] == g.community[b] {
		near += central * g.rank[b]
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

// adamicAdar is what the common neighbours of two tools say of them, in 0…1: one that is
// used with everything says little.
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
			sum += 1 / math.Log(float64(len(g.adjacent[one[0].node]))) // at least these two have it
			one, two = one[1:], two[1:]
		}
	}
	return sum / (1 + sum)
}
