package storetest_test

import (
	"fmt"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// toolPairs returns the edges, the last one used first, as "a b 3".
func toolPairs(t *testing.T, db *storetest.DB, limit int) (out []string) {
	t.Helper()
	all, err := db.Tools(t.Context()).Edges(limit)
	require.NoError(t, err)
	for _, e := range all {
		out = append(out, fmt.Sprint(e.From, " ", e.To, " ", e.Runs))
	}
	return out
}

func TestToolGraph(t *testing.T) {
	t.Parallel()
	edge := func(from, to string, runs int64) models.ToolEdge {
		return models.ToolEdge{From: from, To: to, Runs: runs}
	}

	rule(t, "AddsRunsToEdgesAndReturnsTheSums", func(t *testing.T, db *storetest.DB) {
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Tools().AddEdges([]models.ToolEdge{edge("b", "a", 1), edge("a", "b", 2)})
			require.Equal(t, []models.ToolEdge{{From: "a", To: "b", Runs: 2, LastUsed: db.Now()}, {From: "b", To: "a", Runs: 1, LastUsed: db.Now()}}, got)
			return err
		})
		db.Clock.Advance(time.Second)
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Tools().AddEdges([]models.ToolEdge{edge("a", "b", 40)})
			require.Equal(t, []models.ToolEdge{{From: "a", To: "b", Runs: 42, LastUsed: db.Now()}}, got)
			return err
		})
		require.Equal(t, []string{"a b 42", "b a 1"}, toolPairs(t, db, 10), "the last one used first")
		require.Equal(t, []string{"a b 42"}, toolPairs(t, db, 1))
	})

	rule(t, "AddsRunsAndFailuresToTools", func(t *testing.T, db *storetest.DB) {
		var many []models.ToolNode
		for i := range 300 {
			many = append(many, models.ToolNode{Tool: fmt.Sprintf("t%03d", i), Runs: 1})
		}
		write(t, db, func(tx *store.Tx) error { return tx.Tools().AddRuns(many) })
		write(t, db, func(tx *store.Tx) error {
			return tx.Tools().AddRuns([]models.ToolNode{{Tool: "t000", Runs: 2, Failed: 3}})
		})
		write(t, db, func(tx *store.Tx) error {
			return tx.Tools().SetRanks([]models.ToolNode{{Tool: "t000", Rank: 0.25, Community: 7}, {Tool: "unknown", Rank: 1}})
		})
		nodes, err := db.Tools(t.Context()).Nodes(1000)
		require.NoError(t, err)
		require.Len(t, nodes, 300)
		require.Equal(t, models.ToolNode{Tool: "t000", Runs: 3, Failed: 3, LastUsed: db.Now(), Rank: 0.25, Community: 7}, nodes[0])
		require.Equal(t, models.ToolNode{Tool: "t001", Runs: 1, LastUsed: db.Now(), Community: -1}, nodes[1], "nothing is computed yet")
	})

	rule(t, "PurgesUnusedEdgesAndTools", func(t *testing.T, db *storetest.DB) {
		add := func(list ...models.ToolEdge) {
			write(t, db, func(tx *store.Tx) error {
				if _, err := tx.Tools().AddEdges(list); err != nil {
					return err
				}
				return tx.Tools().AddRuns([]models.ToolNode{{Tool: list[0].From, Runs: 1}})
			})
			db.Clock.Advance(time.Second)
		}
		add(edge("a", "b", 1), edge("a", "c", 1))
		second := db.Now()
		add(edge("b", "c", 1))
		add(edge("a", "c", 1))
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tools().PurgeEdges(second, 10) }), "a c was used again")
		require.Equal(t, []string{"a c 2", "b c 1"}, toolPairs(t, db, 10))
		require.EqualValues(t, 0, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tools().TrimEdges(2, 10) }))
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tools().TrimEdges(1, 10) }))
		require.Equal(t, []string{"a c 2"}, toolPairs(t, db, 10))
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tools().PurgeNodes(second.Add(time.Millisecond), 10) }))
	})

	rule(t, "StoresIDsThatBothDatabasesAccept", func(t *testing.T, db *storetest.DB) {
		odd := "a\x00\xff" + strings.Repeat("é", 300)
		write(t, db, func(tx *store.Tx) error {
			if err := tx.Tools().AddRuns([]models.ToolNode{{Tool: odd, Runs: 1}}); err != nil {
				return err
			}
			_, err := tx.Tools().AddEdges([]models.ToolEdge{edge(odd, "b", 1)})
			return err
		})
		all, err := db.Tools(t.Context()).Edges(10)
		require.NoError(t, err)
		require.LessOrEqual(t, len(all[0].From), 256)
	})
}

func TestToolVectors(t *testing.T) {
	t.Parallel()

	rule(t, "AreStoredExactly", func(t *testing.T, db *storetest.DB) {
		var all []models.ToolVector
		var digests []string
		for i := range 200 {
			v := models.ToolVector{Digest: fmt.Sprintf("%064d", i), Vector: []float32{float32(i), -0.1, math.MaxFloat32, math.SmallestNonzeroFloat32}}
			all, digests = append(all, v), append(digests, v.Digest)
		}
		write(t, db, func(tx *store.Tx) error { return tx.Tools().SaveVectors(all) })
		write(t, db, func(tx *store.Tx) error { return tx.Tools().SaveVectors(all[:1]) })
		got, err := db.Tools(t.Context()).Vectors(append(digests, "unknown"))
		require.NoError(t, err)
		require.ElementsMatch(t, all, got)
		none, err := db.Tools(t.Context()).Vectors(nil)
		require.NoError(t, err)
		require.Empty(t, none)
	})

	rule(t, "ArePurgedUnlessTheyAreInUse", func(t *testing.T, db *storetest.DB) {
		write(t, db, func(tx *store.Tx) error {
			return tx.Tools().SaveVectors([]models.ToolVector{{Digest: "a", Vector: []float32{1}}, {Digest: "b", Vector: []float32{2}}})
		})
		db.Clock.Advance(time.Hour)
		write(t, db, func(tx *store.Tx) error { return tx.Tools().UseVectors([]string{"b", "unknown"}) })
		require.EqualValues(t, 1, purged(t, db, func(tx *store.Tx) (int64, error) { return tx.Tools().PurgeVectors(db.Now(), 10) }))
		got, err := db.Tools(t.Context()).Vectors([]string{"a", "b"})
		require.NoError(t, err)
		require.Equal(t, []models.ToolVector{{Digest: "b", Vector: []float32{2}}}, got)
	})
}

func TestConcurrentToolEdges(t *testing.T) {
	t.Parallel()
	rule(t, "AreAddedUpWithoutADeadlock", func(t *testing.T, db *storetest.DB) {
		var all sync.WaitGroup
		for n := range 4 {
			all.Go(func() {
				for range 20 {
					list := []models.ToolEdge{{From: "a", To: "b", Runs: 1}, {From: "b", To: "c", Runs: 1}, {From: "c", To: "a", Runs: 1}}
					if n%2 == 0 { // each in his own order
						list[0], list[2] = list[2], list[0]
					}
					write(t, db, func(tx *store.Tx) error {
						_, err := tx.Tools().AddEdges(list)
						return err
					})
				}
			})
		}
		all.Wait()
		require.Equal(t, []string{"a b 80", "b c 80", "c a 80"}, toolPairs(t, db, 10))
	})
}
