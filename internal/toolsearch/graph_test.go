package toolsearch_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/toolsearch"
	"comet/internal/toolsearch/graphstore"
	"comet/store"
	"comet/store/storetest"
)

// changes collects the changes of a graph.
type changes struct {
	mu  sync.Mutex
	all []toolsearch.Change
}

func (c *changes) add(one toolsearch.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, one)
}

// of returns the changes of a kind.
func (c *changes) of(k toolsearch.ChangeKind) (out []toolsearch.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.all {
		if one.Kind == k {
			out = append(out, one)
		}
	}
	return out
}

// newIndex returns an index of tools with similar texts, so that the graph decides between them.
func newIndex(db *storetest.DB, opts *toolsearch.Options) *toolsearch.Index {
	x := toolsearch.New(db.Store, opts)
	x.Replace("fs", []toolsearch.Tool{
		tool("read_x", "Reads"), tool("read_y", "Reads"), tool("read_z", "Reads"), tool("write", "Stores"), tool("parse", "Understands"), tool("paint", "Draws"),
	})
	return x
}

// record records a run several times and writes it.
func record(t *testing.T, x *toolsearch.Index, times int, tools string) {
	t.Helper()
	for range times {
		require.NoError(t, x.Record(strings.Fields(tools)))
	}
	require.NoError(t, x.Flush(t.Context()))
}

func edges(t *testing.T, db *storetest.DB) map[string]int64 {
	t.Helper()
	all, err := graphstore.Edges(t.Context(), db.Store, 1000)
	require.NoError(t, err)
	out := map[string]int64{}
	for _, e := range all {
		out[e.From+" "+e.To] = e.Runs
	}
	return out
}

// start starts an index until the end of the test.
func start(t *testing.T, x *toolsearch.Index) {
	t.Helper()
	require.NoError(t, x.Start(t.Context()))
	require.NoError(t, x.Start(t.Context()))
	t.Cleanup(func() {
		require.NoError(t, x.Stop(context.Background()))
		require.NoError(t, x.Stop(context.Background()))
	})
}

func TestRecord(t *testing.T) {
	t.Parallel()

	onDatabases(t, "counts each pair once per run", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, nil)
		record(t, x, 1, "fs:write "+strings.Repeat("fs:read_x fs:parse ", 4000))
		require.Equal(t, map[string]int64{"fs:write fs:read_x": 1, "fs:write fs:parse": 1, "fs:read_x fs:parse": 1}, edges(t, db))
		record(t, x, 3, "fs:read_x fs:parse")
		require.EqualValues(t, 4, edges(t, db)["fs:read_x fs:parse"])
	})

	onDatabases(t, "connects only tools that are close in a run", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, nil)
		record(t, x, 1, "a b c d e f")
		got := edges(t, db)
		require.Contains(t, got, "a e")
		require.NotContains(t, got, "a f")
	})

	onDatabases(t, "rejects runs over the limits", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, &toolsearch.Options{MaxPending: 50})
		require.NoError(t, x.Record(repeat("a", toolsearch.MaxRun)))
		require.True(t, errs.Is(x.Record(repeat("a", toolsearch.MaxRun+1)), errs.InvalidRequest))
		require.NoError(t, x.Record([]string{strings.Repeat("a", 256)}))
		require.True(t, errs.Is(x.Record([]string{strings.Repeat("a", 257)}), errs.InvalidRequest))
		require.True(t, errs.Is(x.Record([]string{""}), errs.InvalidRequest))
		require.NoError(t, x.Record(nil))
		for i := 0; ; i++ { // without a flush
			if err := x.Record([]string{fmt.Sprint("a", i), fmt.Sprint("b", i)}); err != nil {
				require.True(t, errs.Is(err, errs.Busy), "%v", err)
				break
			}
			require.Less(t, i, 50)
		}
		require.NoError(t, x.Flush(t.Context()))
		require.NoError(t, x.Record([]string{"a", "b"}))
	})

	onDatabases(t, "adds up the runs of replicas", func(t *testing.T, db *storetest.DB) {
		var all sync.WaitGroup
		for range 4 {
			x := newIndex(db, nil)
			all.Go(func() {
				for range 25 {
					require.NoError(t, x.Record([]string{"fs:read_x", "fs:parse", "fs:write"}))
					require.NoError(t, x.Record([]string{"fs:write", "fs:parse", "fs:read_x"}))
					require.NoError(t, x.Flush(context.Background()))
				}
			})
		}
		all.Wait()
		for pair, n := range edges(t, db) {
			require.EqualValues(t, 100, n, pair)
		}
		require.Len(t, edges(t, db), 6)
	})

	onDatabases(t, "keeps runs that cannot be written", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, nil)
		require.NoError(t, x.Record([]string{"fs:read_x", "fs:parse"}))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.Error(t, x.Flush(ended))
		require.NoError(t, x.Flush(t.Context()))
		require.Equal(t, map[string]int64{"fs:read_x fs:parse": 1}, edges(t, db))
	})

	onDatabases(t, "writes pending runs on Stop", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, &toolsearch.Options{FlushInterval: time.Hour})
		require.NoError(t, x.Start(t.Context()))
		require.NoError(t, x.Record([]string{"fs:read_x", "fs:parse"}))
		require.NoError(t, x.Stop(context.Background()))
		require.NoError(t, x.Stop(context.Background()))
		require.Len(t, edges(t, db), 1)
	})
}

func repeat(id string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = id
	}
	return out
}

func TestGraph(t *testing.T) {
	t.Parallel()

	onDatabases(t, "ranks tools used with the context higher", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, nil)
		record(t, x, 5, "fs:parse fs:read_z")
		require.Equal(t, "fs:read_x", search(t, x, "read")[0], "without a context, equal tools are sorted by id")
		a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", ContextTools: []string{"fs:parse"}})
		require.NoError(t, err)
		require.Equal(t, "fs:read_z", a.Hits[0].ID)
		require.InDelta(t, 0.5, a.Meta.Alpha, 1e-9, "two tools and one edge: max(0.5, 1 - 2·1)")
		require.InDelta(t, 1, a.Meta.Density, 1e-9)
		h := a.Hits[0]
		require.Positive(t, h.GraphScore)
		require.InDelta(t, a.Meta.Alpha*h.SemanticScore+(1-a.Meta.Alpha)*h.GraphScore, h.Score, 1e-4)
		require.Equal(t, []string{"fs:parse"}, h.RelatedTools)
		require.Zero(t, a.Hits[1].GraphScore)
	})

	onDatabases(t, "counts common neighbours", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, nil)
		record(t, x, 2, "fs:parse fs:write")
		record(t, x, 2, "fs:write fs:read_y")
		a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", ContextTools: []string{"fs:parse"}})
		require.NoError(t, err)
		require.Equal(t, "fs:read_y", a.Hits[0].ID, "both were used with fs:write")
	})

	onDatabases(t, "is not dominated by one loop", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, nil)
		record(t, x, 1, strings.Repeat("fs:parse fs:read_x ", 5000))
		record(t, x, 2, "fs:parse fs:read_y")
		a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", ContextTools: []string{"fs:parse"}})
		require.NoError(t, err)
		require.Equal(t, "fs:read_y", a.Hits[0].ID)
	})

	onDatabases(t, "adds related tools", func(t *testing.T, db *storetest.DB) {
		x := newIndex(db, nil)
		record(t, x, 50, "fs:read_x fs:paint")
		q := toolsearch.Query{Text: "read", IncludeRelated: true}
		a, err := x.Search(t.Context(), q)
		require.NoError(t, err)
		var related []toolsearch.Hit
		for _, h := range a.Hits {
			if h.Related {
				related = append(related, h)
			}
		}
		require.Len(t, related, 1)
		require.Equal(t, "fs:paint", related[0].ID)
		require.Equal(t, "Draws", related[0].Description)
		require.Less(t, related[0].Score, a.Hits[0].Score)
		q.Allowed = func(id string) bool { return id != "fs:paint" }
		a, err = x.Search(t.Context(), q)
		require.NoError(t, err)
		require.NotContains(t, ids(a), "fs:paint", "a hidden tool is no related tool")
		require.Empty(t, a.Hits[0].RelatedTools)
		q.Allowed, q.Limit = nil, 1
		a, err = x.Search(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, []string{"fs:read_x"}, ids(a), "the limit includes related tools")
		x.Replace("fs", []toolsearch.Tool{tool("read_x", "Reads")})
		q.Limit = 5
		a, err = x.Search(t.Context(), q)
		require.NoError(t, err)
		require.Equal(t, []string{"fs:read_x"}, ids(a), "a removed tool is no hit")
		require.Empty(t, a.Hits[0].RelatedTools)
	})

	onDatabases(t, "is read by every replica and publishes changes", func(t *testing.T, db *storetest.DB) {
		other := newIndex(db, nil)
		record(t, other, 3, "fs:parse fs:read_z")
		require.False(t, other.Ranked("fs:parse"), "its rank is not computed yet")
		require.True(t, other.Ranked("fs:write"), "it is not in the graph")
		var seen changes
		x := newIndex(db, &toolsearch.Options{FlushInterval: time.Millisecond, RecomputeInterval: time.Millisecond, OnChange: seen.add})
		start(t, x)
		require.Eventually(t, func() bool { return len(seen.of(toolsearch.MetricsUpdated)) > 0 }, time.Minute, 5*time.Millisecond)
		require.True(t, x.Ranked("fs:parse"))
		synced := seen.of(toolsearch.GraphSynced)
		require.Len(t, synced, 1)
		require.Equal(t, toolsearch.Change{Kind: toolsearch.GraphSynced, Nodes: 2, Edges: 1, Density: 1}, synced[0])
		require.Equal(t, toolsearch.Change{Kind: toolsearch.MetricsUpdated, Nodes: 2, Edges: 1, Communities: 1, Density: 1}, seen.of(toolsearch.MetricsUpdated)[0])
		a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", ContextTools: []string{"fs:parse"}})
		require.NoError(t, err)
		require.Equal(t, "fs:read_z", a.Hits[0].ID)

		require.NoError(t, x.Record([]string{"fs:parse", "fs:read_z", "fs:write"}))
		require.Eventually(t, func() bool { return len(seen.of(toolsearch.EdgeCreated)) == 2 }, time.Minute, 5*time.Millisecond)
		updated := seen.of(toolsearch.EdgeUpdated)
		require.Len(t, updated, 1)
		require.Equal(t, "fs:parse fs:read_z 4", fmt.Sprint(updated[0].From, " ", updated[0].To, " ", updated[0].Runs))
	})

	onDatabases(t, "stores ranks and communities", func(t *testing.T, db *storetest.DB) {
		var seen changes
		x := newIndex(db, &toolsearch.Options{FlushInterval: time.Millisecond, RecomputeInterval: time.Millisecond, OnChange: seen.add})
		record(t, x, 9, "a b c")
		record(t, x, 9, "d e f")
		record(t, x, 1, "c d")
		start(t, x)
		require.Eventually(t, func() bool {
			all := seen.of(toolsearch.MetricsUpdated)
			return len(all) > 0 && all[len(all)-1].Communities == 2
		}, time.Minute, 5*time.Millisecond)
		nodes, err := graphstore.Nodes(t.Context(), db.Store, 10)
		require.NoError(t, err)
		byTool := map[string]graphstore.Node{}
		for _, n := range nodes {
			byTool[n.Tool] = n
			require.Positive(t, n.Rank, n.Tool)
		}
		require.Equal(t, byTool["a"].Community, byTool["c"].Community)
		require.Equal(t, byTool["d"].Community, byTool["f"].Community)
		require.NotEqual(t, byTool["a"].Community, byTool["d"].Community)
		require.Greater(t, byTool["c"].Rank, byTool["a"].Rank, "runs lead to c and not to a")
	})

	onDatabases(t, "removes unused edges and edges over the limit", func(t *testing.T, db *storetest.DB) {
		first := newIndex(db, nil)
		record(t, first, 1, "old older")
		db.Clock.Advance(31 * 24 * time.Hour)
		for i := range 5 {
			record(t, first, 1, fmt.Sprintf("n%d m%d", i, i))
			db.Clock.Advance(time.Second)
		}
		start(t, newIndex(db, &toolsearch.Options{MaxEdges: 3}))
		require.Eventually(t, func() bool {
			nodes, err := graphstore.Nodes(t.Context(), db.Store, 100)
			return err == nil && len(nodes) == 10
		}, time.Minute, 5*time.Millisecond)
		require.Equal(t, map[string]int64{"n2 m2": 1, "n3 m3": 1, "n4 m4": 1}, edges(t, db))
	})

	onDatabases(t, "weighs old edges less", func(t *testing.T, db *storetest.DB) {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := graphstore.AddEdges(tx, []graphstore.Edge{{From: "fs:parse", To: "fs:read_x", Runs: 1}})
			return err
		}))
		db.Clock.Advance(29 * 24 * time.Hour)
		var seen changes
		x := newIndex(db, &toolsearch.Options{FlushInterval: time.Millisecond, OnChange: seen.add})
		start(t, x)
		require.Eventually(t, func() bool { return len(seen.of(toolsearch.GraphSynced)) > 0 }, time.Minute, 5*time.Millisecond)
		record(t, x, 3, "fs:parse fs:read_y")
		a, err := x.Search(t.Context(), toolsearch.Query{Text: "read", ContextTools: []string{"fs:parse"}})
		require.NoError(t, err)
		require.Equal(t, "fs:read_y", a.Hits[0].ID)
	})
}
