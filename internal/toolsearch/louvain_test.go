package toolsearch_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch"
)

// karateClub contains the friendships between the members of a club that split in two (Zachary 1977).
var karateClub = [][2]int{
	{0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}, {0, 6}, {0, 7}, {0, 8}, {0, 10}, {0, 11}, {0, 12}, {0, 13}, {0, 17}, {0, 19}, {0, 21}, {0, 31},
	{1, 2}, {1, 3}, {1, 7}, {1, 13}, {1, 17}, {1, 19}, {1, 21}, {1, 30}, {2, 3}, {2, 7}, {2, 8}, {2, 9}, {2, 13}, {2, 27}, {2, 28}, {2, 32},
	{3, 7}, {3, 12}, {3, 13}, {4, 6}, {4, 10}, {5, 6}, {5, 10}, {5, 16}, {6, 16}, {8, 30}, {8, 32}, {8, 33}, {9, 33}, {13, 33}, {14, 32},
	{14, 33}, {15, 32}, {15, 33}, {18, 32}, {18, 33}, {19, 33}, {20, 32}, {20, 33}, {22, 32}, {22, 33}, {23, 25}, {23, 27}, {23, 29}, {23, 32},
	{23, 33}, {24, 25}, {24, 27}, {24, 31}, {25, 31}, {26, 29}, {26, 33}, {27, 33}, {28, 31}, {28, 33}, {29, 32}, {29, 33}, {30, 32}, {30, 33},
	{31, 32}, {31, 33}, {32, 33},
}

// modularity is the share of the edges within communities minus the share that random edges would have.
func modularity(edges [][2]int, community func(int) int) float64 {
	degrees, within, q := map[int]float64{}, 0.0, 0.0
	for _, e := range edges {
		a, b := community(e[0]), community(e[1])
		degrees[a]++
		degrees[b]++
		if a == b {
			within++
		}
	}
	m := float64(len(edges))
	for _, d := range degrees {
		q -= d / (2 * m) * d / (2 * m)
	}
	return q + within/m
}

func TestCommunities(t *testing.T) {
	t.Parallel()

	t.Run("of the karate club have nearly the highest modularity", func(t *testing.T) {
		t.Parallel()
		require.Len(t, karateClub, 78)
		stats := toolsearch.Stats(34, karateClub)
		q := modularity(karateClub, func(i int) int { return stats[i].Community })
		require.Greater(t, q, 0.41, "the highest is 0.4198")
		require.Equal(t, stats, toolsearch.Stats(34, karateClub), "the same graph has the same communities")
	})

	t.Run("of cliques in a ring are one or two cliques", func(t *testing.T) {
		t.Parallel()
		const cliques, size = 20, 6
		var edges [][2]int
		for c := range cliques {
			for i := range size {
				for j := range i {
					edges = append(edges, [2]int{c*size + j, c*size + i})
				}
			}
			edges = append(edges, [2]int{c * size, (c + 1) % cliques * size})
		}
		stats := toolsearch.Stats(cliques*size, edges)
		for i := range stats {
			require.Equal(t, stats[i/size*size].Community, stats[i].Community, "a clique is not divided")
		}
		require.Greater(t, modularity(edges, func(i int) int { return stats[i].Community }), 0.88)
	})
}

// TestPageRank compares the ranks with those of the definition, solved by hand.
func TestPageRank(t *testing.T) {
	t.Parallel()

	t.Run("of a chain", func(t *testing.T) {
		t.Parallel()
		// 2 has no edge to others and passes its rank to all: r0 = x, r1 = x+.85·r0, r2 = x+.85·r1.
		stats := toolsearch.Stats(3, [][2]int{{0, 1}, {1, 2}})
		x := 1 / (1 + 1.85 + 1 + 0.85*1.85)
		require.InDelta(t, x, stats[0].Rank, 1e-6)
		require.InDelta(t, 1.85*x, stats[1].Rank, 1e-6)
		require.InDelta(t, (1+0.85*1.85)*x, stats[2].Rank, 1e-6)
	})

	t.Run("of a ring are equal", func(t *testing.T) {
		t.Parallel()
		for _, n := range toolsearch.Stats(4, [][2]int{{0, 1}, {1, 2}, {2, 3}, {3, 0}}) {
			require.InDelta(t, 0.25, n.Rank, 1e-9)
		}
	})
}
