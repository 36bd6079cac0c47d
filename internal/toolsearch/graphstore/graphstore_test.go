package graphstore_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/toolsearch/graphstore"
	"comet/store"
	"comet/store/storetest"
)

func rule(t *testing.T, name string, fn func(t *testing.T, db *storetest.DB)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, fn)
	})
}

func write(t *testing.T, db *storetest.DB, fn func(*store.Tx) error) {
	t.Helper()
	require.NoError(t, db.Write(t.Context(), fn))
}

// purged runs a purge until nothing is left to delete, and returns how many rows it deleted.
func purged(t *testing.T, db *storetest.DB, purge func(*store.Tx) (int64, error)) (n int64) {
	t.Helper()
	for more := int64(1); more > 0; {
		write(t, db, func(tx *store.Tx) (err error) { more, err = purge(tx); return err })
		n += more
	}
	return n
}

// toolPairs returns the edges, the last one used first, as "a b 3".
func toolPairs(t *testing.T, db *storetest.DB, limit int) (out []string) {
	t.Helper()
	all, err := graphstore.Edges(t.Context(), db.Store, limit)
	require.NoError(t, err)
	for _, e := range all {
		out = append(out, fmt.Sprint(e.From, " ", e.To, " ", e.Runs))
	}
	return out
}

func TestToolGraph(t *testing.T) {
	t.Parallel()
	edge := func(from, to string, runs int64) graphstore.Edge {
		return graphstore.Edge{From: from, To: to, Runs: runs}
	}

	rule(t, "AddsRunsToEdgesAndReturnsTheSums", func(t *testing.T, db *storetest.DB) {
		write(t, db, func(tx *store.Tx) error {
			got, err := graphstore.AddEdges(tx, []graphstore.Edge{edge("b", "a", 1), edge("a", "b", 2)})
			require.Equal(t, []graphstore.Edge{{From: "a", To: "b", Runs: 2, LastUsed: db.Now()}, {From: "b", To: "a", Runs: 1, LastUsed: db.Now()}}, got)
			return err
		})
		db.Clock.Advance(time.Second)
		write(t, db, func(tx *store.Tx) error {
			got, err := graphstore.AddEdges(tx, []graphstore.Edge{edge("a", "b", 40)})
			require.Equal(t, []graphstore.Edge{{From: "a", To: "b", Runs: 42, LastUsed: db.Now()}}, got)
			return err
		})
		require.Equal(t, []string{"a b 42", "b a 1"}, toolPairs(t, db, 10), "the last one used first")
		require.Equal(t, []string{"a b 42"}, toolPairs(t, db, 1))
	})

	rule(t, "AddsRunsAndFailuresToTools", func(t *testing.T, db *storetest.DB) {
		var many []graphstore.Node
		for i := range 300 {
			many = append(many, graphstore.Node{Tool: fmt.Sprintf("t%03d", i), Runs: 1})
		}
		write(t, db, func(tx *store.Tx) error { return graphstore.AddRuns(tx, many) })
		write(t, db, func(tx *store.Tx) error {
			return graphstore.AddRuns(tx, []graphstore.Node{{Tool: "t000", Runs: 2}})
		})
		write(t, db, func(tx *store.Tx) error {
			return graphstore.SetRanks(tx, []graphstore.Node{{Tool: "t000", Rank: 0.25, Community: 7}, {Tool: "unknown", Rank: 1}})
		})
		nodes, err := graphstore.Nodes(t.Context(), db.Store, 1000)
		require.NoError(t, err)
		require.Len(t, nodes, 300)
		require.Equal(t, graphstore.Node{Tool: "t000", Runs: 3, LastUsed: db.Now(), Rank: 0.25, Community: 7}, nodes[0])
		require.Equal(t, graphstore.Node{Tool: "t001", Runs: 1, LastUsed: db.Now(), Community: -1}, nodes[1], "nothing is computed yet")
	})

	rule(t, "PurgesUnusedEdgesAndTools", func(t *testing.T, db *storetest.DB) {
		add := func(list ...graphstore.Edge) {
			write(t, db, func(tx *store.Tx) error {
				if _, err := graphstore.AddEdges(tx, list); err != nil {
					return err
				}
				return graphstore.AddRuns(tx, []graphstore.Node{{Tool: list[0].From, Runs: 1}})
			})
			db.Clock.Advance(time.Second)
		}
		add(edge("a", "b", 1), edge("a", "c", 1))
		second := db.Now()
		add(edge("b", "c", 1))
		add(edge("a", "c", 1))
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return graphstore.PurgeEdges(tx, second, 10) }), "a c was used again")
		require.Equal(t, []string{"a c 2", "b c 1"}, toolPairs(t, db, 10))
		require.EqualValues(t, 0, purged(t, db, func(tx *store.Tx) (int64, error) { return graphstore.TrimEdges(tx, 2, 10) }))
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return graphstore.TrimEdges(tx, 1, 10) }))
		require.Equal(t, []string{"a c 2"}, toolPairs(t, db, 10))
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return graphstore.PurgeNodes(tx, second.Add(time.Millisecond), 10) }))
	})

	rule(t, "StoresIDsThatBothDatabasesAccept", func(t *testing.T, db *storetest.DB) {
		odd := "a\x00\xff" + strings.Repeat("é", 300)
		write(t, db, func(tx *store.Tx) error {
			if err := graphstore.AddRuns(tx, []graphstore.Node{{Tool: odd, Runs: 1}}); err != nil {
				return err
			}
			_, err := graphstore.AddEdges(tx, []graphstore.Edge{edge(odd, "b", 1)})
			return err
		})
		all, err := graphstore.Edges(t.Context(), db.Store, 10)
		require.NoError(t, err)
		require.LessOrEqual(t, len(all[0].From), 256)
	})
}

func TestToolVectors(t *testing.T) {
	t.Parallel()

	rule(t, "AreStoredExactly", func(t *testing.T, db *storetest.DB) {
		var all []graphstore.Vector
		var digests []string
		for i := range 200 {
			v := graphstore.Vector{Digest: fmt.Sprintf("%064d", i), Vector: []float32{float32(i), -0.1, math.MaxFloat32, math.SmallestNonzeroFloat32}}
			all, digests = append(all, v), append(digests, v.Digest)
		}
		write(t, db, func(tx *store.Tx) error { return graphstore.SaveVectors(tx, all) })
		write(t, db, func(tx *store.Tx) error { return graphstore.SaveVectors(tx, all[:1]) })
		got, err := graphstore.Vectors(t.Context(), db.Store, append(digests, "unknown"))
		require.NoError(t, err)
		require.ElementsMatch(t, all, got)
		none, err := graphstore.Vectors(t.Context(), db.Store, nil)
		require.NoError(t, err)
		require.Empty(t, none)
	})

	rule(t, "ArePurgedUnlessTheyAreInUse", func(t *testing.T, db *storetest.DB) {
		write(t, db, func(tx *store.Tx) error {
			return graphstore.SaveVectors(tx, []graphstore.Vector{{Digest: "a", Vector: []float32{1}}, {Digest: "b", Vector: []float32{2}}})
		})
		db.Clock.Advance(time.Hour)
		write(t, db, func(tx *store.Tx) error { return graphstore.UseVectors(tx, []string{"b", "unknown"}) })
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return graphstore.PurgeVectors(tx, db.Now(), 10) }))
		got, err := graphstore.Vectors(t.Context(), db.Store, []string{"a", "b"})
		require.NoError(t, err)
		require.Equal(t, []graphstore.Vector{{Digest: "b", Vector: []float32{2}}}, got)
	})
}

func TestConcurrentToolEdges(t *testing.T) {
	t.Parallel()
	rule(t, "AreAddedUpWithoutADeadlock", func(t *testing.T, db *storetest.DB) {
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				for range 20 {
					list := []graphstore.Edge{{From: "a", To: "b", Runs: 1}, {From: "b", To: "c", Runs: 1}, {From: "c", To: "a", Runs: 1}}
					if n%2 == 0 { // each in his own order
						list[0], list[2] = list[2], list[0]
					}
					write(t, db, func(tx *store.Tx) error {
						_, err := graphstore.AddEdges(tx, list)
						return err
					})
				}
			})
		}
		all.Wait()
		require.Equal(t, []string{"a b 80", "b c 80", "c a 80"}, toolPairs(t, db, 10))
	})
}
