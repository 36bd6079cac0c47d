package toolsearch

import (
	"cmp"
	"slices"
)

// louvain returns the community of each node of an undirected graph by Louvain's method, which maximizes the
// modularity. Communities are numbered by their first node. The edges of a node to itself, which only merged
// nodes have, count twice in their weight.
func louvain(adjacent [][]neighbour) []int {
	of, moved := moveNodes(adjacent)
	if !moved {
		return of
	}
	merged := louvain(mergeNodes(adjacent, of))
	for i, c := range of {
		of[i] = merged[c]
	}
	return of
}

// moveNodes moves each node to the community of a neighbour that increases the modularity the most, until
// no move increases it.
func moveNodes(adjacent [][]neighbour) (of []int, moved bool) {
	const minGain = 1e-12
	of = make([]int, len(adjacent))
	degrees, total := make([]float64, len(adjacent)), 0.0
	for i, edges := range adjacent {
		of[i] = i
		for _, e := range edges {
			degrees[i] += e.weight
		}
		total += degrees[i]
	}
	sums, weights := slices.Clone(degrees), make([]float64, len(adjacent)) // by community
	for again := true; again; {
		again = false
		for i, edges := range adjacent {
			from := of[i]
			sums[from] -= degrees[i]
			for _, e := range edges {
				weights[of[e.node]] = 0
			}
			weights[from] = 0
			for _, e := range edges {
				if int(e.node) != i {
					weights[of[e.node]] += e.weight
				}
			}
			gain := func(c int) float64 { return weights[c] - sums[c]*degrees[i]/total }
			best, most := from, gain(from)
			for _, e := range edges {
				if c := of[e.node]; gain(c) > most+minGain {
					best, most = c, gain(c)
				}
			}
			sums[best] += degrees[i]
			if best != from {
				of[i], again, moved = best, true, true
			}
		}
	}
	return renumber(of), moved
}

// renumber numbers communities by their first node, from 0.
func renumber(of []int) []int {
	numbers := map[int]int{}
	for i, c := range of {
		if _, ok := numbers[c]; !ok {
			numbers[c] = len(numbers)
		}
		of[i] = numbers[c]
	}
	return of
}

// mergeNodes returns the graph whose nodes are the communities of another graph.
func mergeNodes(adjacent [][]neighbour, of []int) [][]neighbour {
	merged := make([][]neighbour, slices.Max(of)+1)
	for i, edges := range adjacent {
		for _, e := range edges {
			merged[of[i]] = append(merged[of[i]], neighbour{node: int32(of[e.node]), weight: e.weight})
		}
	}
	for c, edges := range merged {
		slices.SortStableFunc(edges, func(a, b neighbour) int { return cmp.Compare(a.node, b.node) })
		all := edges[:0]
		for _, e := range edges {
			if n := len(all); n > 0 && all[n-1].node == e.node {
				all[n-1].weight += e.weight
			} else {
				all = append(all, e)
			}
		}
		merged[c] = all
	}
	return merged
}
