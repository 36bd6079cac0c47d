package storetest_test

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/sqlitefile"
	"comet/store/storetest"
)

// TestEachIndexOfTasksHasAQuery proves that each index of the tasks is chosen for a query of comet, and
// that no query reads all tasks.
func TestEachIndexOfTasksHasAQuery(t *testing.T) {
	t.Parallel()
	opts := storetest.Migrated(t, "sqlite")
	opts.SkipMigrations = true
	var mu sync.Mutex
	queries := map[string]bool{}
	opts.Connector = storetest.Statements(func(s storetest.Statement) {
		mu.Lock()
		defer mu.Unlock()
		queries[s.Query] = true
	})
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	runEveryTaskQuery(t, s)

	plans := map[string][]string{} // queries by index
	db := openFile(t, sqlitefile.Path(opts.Dir))
	index := regexp.MustCompile(`USING (?:COVERING )?INDEX (\w+)`)
	for query := range queries {
		verb, _, _ := strings.Cut(query, " ")
		if !slices.Contains([]string{"SELECT", "UPDATE", "DELETE"}, verb) || !strings.Contains(query, "tasks") {
			continue
		}
		rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+query, make([]any, strings.Count(query, "?"))...)
		require.NoError(t, err, query)
		for rows.Next() {
			var id, parent, unused int
			var step string
			require.NoError(t, rows.Scan(&id, &parent, &unused, &step))
			require.NotEqual(t, "SCAN tasks", step, query)
			for _, found := range index.FindAllStringSubmatch(step, -1) {
				plans[found[1]] = append(plans[found[1]], query)
			}
		}
		require.NoError(t, rows.Err())
		require.NoError(t, rows.Close())
	}
	indexes, err := db.QueryContext(t.Context(), "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'tasks'")
	require.NoError(t, err)
	defer func() { require.NoError(t, indexes.Close()) }()
	for indexes.Next() {
		var name string
		require.NoError(t, indexes.Scan(&name))
		require.Contains(t, slices.Collect(maps.Keys(plans)), name, "no query uses the index")
	}
	require.NoError(t, indexes.Err())
}

// runEveryTaskQuery runs the queries on tasks that are not by id.
func runEveryTaskQuery(t *testing.T, s *store.Store) {
	t.Helper()
	read := s.Tasks(t.Context())
	for _, q := range []store.TaskQuery{
		{}, {AgentID: "a"}, {Owner: "o"}, {SessionID: "s"}, {ParentID: "p"}, {State: models.TaskNew}, {State: models.TaskRunning, AgentID: "a"},
		{Before: store.TaskCursor{CreatedAt: s.Now(), ID: "t"}}, {Since: s.Now(), Until: s.Now()},
	} {
		q.Limit = 10
		_, err := read.List(q)
		require.NoError(t, err)
	}
	_, _ = read.Get("t") // it is errs.NotFound, as some of the others
	_, _ = read.Due(10)
	_, _, _ = read.NextDeadline()
	_, _ = read.WaitsAhead("q", 1)
	_, _ = read.CountWaiting("q", 10)
	_, _ = read.WaitingQueues(10)
	_, _ = read.OpenOf("a", 10)
	_, _ = read.InFlight()
	_, _ = read.CountOpen()
	_, _ = read.Requested(store.TaskRequest{Owner: "o", RequestID: "r"})
	_, _ = read.Children("p")
	_, _ = read.OpenChildren("p")
	_, _ = read.AgentsBeside("p", "t")
	_, _ = s.Inbox(t.Context()).List("a", 10)
	require.NoError(t, s.Write(context.Background(), func(tx *store.Tx) error {
		if _, _, err := tx.Tasks().NextQueued("q"); err != nil {
			return err
		}
		if _, err := tx.Inbox().Acknowledge("a", []string{"m"}); err != nil {
			return err
		}
		_, err := tx.Tasks().Purge(tx.Now(), 10)
		return err
	}))
}
