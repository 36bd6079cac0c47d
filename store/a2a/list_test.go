package a2a

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/store"
	"comet/store/storetest"
)

// rejected stores rejected tasks of a token, each a millisecond after the one before.
func rejected(t testing.TB, db *storetest.DB, owner string, n int) {
	t.Helper()
	const batch = 1000
	for first := 0; first < n; first += batch {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			var all []Task
			for i := first; i < min(first+batch, n); i++ {
				at := db.Now().Add(time.Duration(i) * time.Millisecond)
				all = append(all, Task{ID: fmt.Sprintf("%s-%06d", owner, i), Owner: owner, ContextID: "c", State: Rejected, CreatedAt: at, UpdatedAt: at})
			}
			return store.Insert(tx, "", all...)
		}))
	}
}

// plan returns the steps of a query: on SQLite as planned, on PostgreSQL as executed.
func plan(t *testing.T, db *storetest.DB, query string, args []any) string {
	t.Helper()
	if db.Options.DatabaseURL != "" {
		steps, err := store.Rows[string](db.Reads(t.Context()), "EXPLAIN (ANALYZE, COSTS OFF, TIMING OFF, SUMMARY OFF) "+query, args...)
		require.NoError(t, err, query)
		return strings.Join(steps, "\n")
	}
	type step struct {
		ID, Parent, NotUsed int
		Detail              string
	}
	steps, err := store.Rows[step](db.Reads(t.Context()), "EXPLAIN QUERY PLAN "+query, args...)
	require.NoError(t, err, query)
	var out []string
	for _, s := range steps {
		out = append(out, fmt.Sprint(s.Parent, " ", s.Detail))
	}
	return strings.Join(out, "\n")
}

// TestA2AListPlans proves that a page of the tasks of a token costs its rows: each part of the list is read from an index in the order
// of the list, and only those parts together are sorted. The number of tasks is read from the same indexes.
func TestA2AListPlans(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		rejected(t, db, "o", 500)
		rejected(t, db, "p", 5000)
		if db.Options.DatabaseURL != "" {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Run("ANALYZE a2a_tasks") }))
		}
		for state := AnyState; state <= Refused; state++ {
			for _, q := range []Query{{}, {Cursor: Position{At: db.Now().Add(time.Second), ID: "o-000300"}}, {After: db.Now()}} {
				q.Owner, q.State, q.Limit = "o", state, 10
				page, args := q.page()
				steps := plan(t, db, page, args)
				count, args := q.count()
				counting := plan(t, db, count, args)
				if db.Options.DatabaseURL != "" {
					if state == AnyState || state == Refused {
						require.NotContains(t, steps, "Seq Scan on a2a_tasks", page)
						require.Regexp(t, `using a2a_tasks_outside on a2a_tasks x\S* \(actual rows=10 `, steps, page)
					}
					continue
				}
				require.NotContains(t, steps+counting, "SCAN x", "%s\n%s", page, steps)
				for i, line := range strings.Split(steps+"\n"+counting, "\n") {
					if parent, _, reads := strings.Cut(line, " SEARCH x"); reads {
						require.False(t, i < strings.Count(steps, "\n") && strings.Contains("\n"+steps, "\n"+parent+" USE TEMP B-TREE"), "only the rows of a page are sorted\n%s", steps)
						require.Regexp(t, `INDEX (tasks_a2a|workflows_a2a|a2a_tasks_outside) \((owner|token_id)=\? AND state=\?`, line)
					}
				}
			}
		}
		q := Query{Owner: "o", ContextID: "c", Limit: 10}
		query, args := q.page()
		if steps := plan(t, db, query, args); db.Options.DatabaseURL == "" {
			require.Contains(t, steps, "SEARCH c USING INDEX a2a_tasks_owner (owner=? AND context_id=?)", "the tasks of a context are found first")
			require.NotContains(t, steps, "tasks_a2a")
		}
		page, total, err := List(db.Reads(t.Context()), q)
		require.NoError(t, err)
		require.Equal(t, []any{500, 10, "o-000499"}, []any{total, len(page), page[0].ID})
	})
}

// BenchmarkList reads the first and a later page of a token with 100,000 rejected tasks, and a page of one of its states.
func BenchmarkList(b *testing.B) {
	for _, name := range storetest.Databases() {
		b.Run(name, func(b *testing.B) {
			db := storetest.Open(b, name)
			rejected(b, db, "o", 100_000)
			first, total, err := List(db.Reads(b.Context()), Query{Owner: "o", Limit: 50})
			require.NoError(b, err)
			for title, q := range map[string]Query{"first": {}, "later": {Cursor: first[49], Total: total}, "canceled": {State: Cancelled}} {
				b.Run(title, func(b *testing.B) {
					q.Owner, q.Limit = "o", 50
					for b.Loop() {
						_, _, err := List(db.Reads(b.Context()), q)
						require.NoError(b, err)
					}
				})
			}
		})
	}
}
