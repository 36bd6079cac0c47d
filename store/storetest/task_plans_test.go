package storetest_test

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/a2a"
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

	used := map[string]bool{}
	db := openFile(t, sqlitefile.Path(opts.Dir))
	index := regexp.MustCompile(`USING (?:COVERING )?INDEX (\w+)`)
	for query := range queries {
		verb, _, _ := strings.Cut(query, " ")
		if !slices.Contains([]string{"SELECT", "UPDATE", "DELETE"}, verb) || !strings.Contains(query, "tasks") {
			continue
		}
		for _, step := range lastColumn(t, db, "EXPLAIN QUERY PLAN "+query, strings.Count(query, "?")) {
			require.NotEqual(t, "SCAN tasks", step, query)
			for _, found := range index.FindAllStringSubmatch(step, -1) {
				used[found[1]] = true
			}
		}
	}
	for _, name := range lastColumn(t, db, "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'tasks'", 0) {
		require.True(t, used[name], "no query uses the index %s", name)
	}
}

// lastColumn returns the last column of a query with a number of arguments, which are NULL.
func lastColumn(t *testing.T, db *sql.DB, query string, args int) (column []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), query, make([]any, args)...)
	require.NoError(t, err, query)
	defer func() { require.NoError(t, rows.Close()) }()
	names, err := rows.Columns()
	require.NoError(t, err)
	for rows.Next() {
		row, into := make([]string, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		require.NoError(t, rows.Scan(into...))
		column = append(column, row[len(row)-1])
	}
	require.NoError(t, rows.Err())
	return column
}

// runEveryTaskQuery runs the queries on tasks that are not by id.
func runEveryTaskQuery(t *testing.T, s *store.Store) {
	t.Helper()
	read := s.Tasks(t.Context())
	for _, q := range []store.TaskQuery{
		{}, {AgentID: "a"}, {Owner: "o"}, {SessionID: "s"}, {ParentID: "p"}, {State: models.TaskNew}, {State: models.TaskRunning, AgentID: "a"},
		{WaitingFor: models.WaitForReply}, {WaitingFor: models.WaitForWorker},
		{Before: store.TaskCursor{CreatedAt: s.Now(), ID: "t"}}, {Since: s.Now(), Until: s.Now()},
	} {
		q.Limit = 10
		_, err := read.List(q)
		require.NoError(t, err)
	}
	for state := a2a.AnyState; state <= a2a.Refused; state++ {
		_, _, err := a2a.List(s.Reads(t.Context()), a2a.Query{Owner: "o", State: state, Limit: 10})
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
		if _, _, err := tx.Inbox().Acknowledge("a", []string{"m"}); err != nil {
			return err
		}
		_, err := tx.Tasks().Purge(tx.Now(), 10)
		return err
	}))
}
