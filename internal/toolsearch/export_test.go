package toolsearch

import (
	"strconv"
	"time"

	"comet/internal/toolsearch/graphstore"
)

// Stats returns PageRank and community of the nodes 0 to n-1 of a graph; each edge was used once, now.
func Stats(n int, edges [][2]int) []graphstore.Node {
	now := time.Now()
	all := make([]graphstore.Edge, 0, len(edges))
	for _, e := range edges {
		name := func(i int) string { return strconv.Itoa(1000 + i) }
		all = append(all, graphstore.Edge{From: name(e[0]), To: name(e[1]), Runs: 1, LastUsed: now})
	}
	stats := newGraph(all, nil, now).computeStats()
	if len(stats) != n {
		panic("a node has no edge")
	}
	return stats
}
