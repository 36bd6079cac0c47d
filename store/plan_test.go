package store

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// listFilter is one filter of the agent list.
type listFilter struct {
	name  string
	apply func(*AgentQuery)
}

// documentedFilters are those of CHE·NU §2.1.
func documentedFilters() []listFilter {
	return []listFilter{
		{"sphere_id", func(q *AgentQuery) { q.SphereID = new(3) }},
		{"level", func(q *AgentQuery) { q.Level = new(2) }},
		{"frequency", func(q *AgentQuery) { q.FrequencyHz = new(555) }},
		{"active", func(q *AgentQuery) { q.Active = new(true) }},
		{"inactive", func(q *AgentQuery) { q.Active = new(false) }},
	}
}

// furtherFilters are those that comet adds to the document's.
func furtherFilters() []listFilter {
	return []listFilter{
		{"parent_id", func(q *AgentQuery) { q.ParentID = new("orch-business") }},
		{"capability", func(q *AgentQuery) { q.Capabilities = []string{"plan"} }},
		{"two capabilities", func(q *AgentQuery) { q.Capabilities = []string{"plan", "email"} }},
		{"q", func(q *AgentQuery) { q.Text = "finance" }},
	}
}

// combinations calls fn with every subset of the filters.
func combinations(filters []listFilter, fn func(name string, q AgentQuery)) {
	for set := range 1 << len(filters) {
		q := AgentQuery{Limit: 100, Sort: "id"}
		var names []string
		for i, f := range filters {
			if set&(1<<i) != 0 {
				f.apply(&q)
				names = append(names, f.name)
			}
		}
		fn(strings.Join(names, "+"), q)
	}
}

func explain(t *testing.T, s *Store, query string, args []any) string {
	t.Helper()
	var steps []string
	err := s.on(t.Context()).query("EXPLAIN QUERY PLAN "+query, args, func(rows *sql.Rows) error {
		var id, parent, unused int
		var detail string
		err := rows.Scan(&id, &parent, &unused, &detail)
		steps = append(steps, detail)
		return err
	})
	require.NoError(t, err)
	return strings.Join(steps, "\n")
}

// everyPage calls fn with the first and a later page of the list in every order.
func everyPage(q AgentQuery, fn func(q AgentQuery)) {
	for _, sort := range []string{"id", "name", "level", "created_at"} {
		for _, descending := range []bool{false, true} {
			for _, after := range []*AgentPosition{nil, {ID: "m", Name: "M", Level: 1, CreatedAt: time.Now()}} {
				q.Sort, q.Descending, q.After = sort, descending, after
				fn(q)
			}
		}
	}
}

// TestListPlans reads SQLite's plans of the list's statements, so that a page
// costs the same at any depth and a total does not read the rows it counts.
func TestListPlans(t *testing.T) {
	t.Parallel()
	s, _ := openSQLiteForTest(t)

	t.Run("NoPageIsSorted", func(t *testing.T) {
		t.Parallel()
		combinations(append(documentedFilters(), furtherFilters()...), func(name string, q AgentQuery) {
			everyPage(q, func(q AgentQuery) {
				if (q.ParentID != nil || q.Capabilities != nil) && q.Sort != "id" {
					return // one parent's children or one capability's agents are found first and few enough to sort
				}
				query, args := s.Agents(t.Context()).pageQuery(q)
				plan := explain(t, s, query, args)
				require.NotContains(t, plan, "TEMP B-TREE", "%s by %s\n%s", name, q.Sort, query)
			})
		})
	})

	t.Run("ALaterPageStartsAtItsPosition", func(t *testing.T) {
		t.Parallel()
		combinations(append(documentedFilters(), furtherFilters()...), func(name string, q AgentQuery) {
			everyPage(q, func(q AgentQuery) {
				if q.After == nil {
					return
				}
				query, args := s.Agents(t.Context()).pageQuery(q)
				plan := explain(t, s, query, args)
				require.NotContains(t, plan, "SCAN agents", "%s by %s\n%s", name, q.Sort, query)
			})
		})
	})

	t.Run("TotalsOfTheDocumentsFiltersAndOfAParentComeFromCoveringIndexes", func(t *testing.T) {
		t.Parallel()
		parent := furtherFilters()[0]
		combinations(append(documentedFilters(), parent), func(name string, q AgentQuery) {
			query, args := s.Agents(t.Context()).countQuery(q)
			plan := explain(t, s, query, args)
			require.Contains(t, plan, "USING COVERING INDEX", "%s\n%s", name, query)
		})
	})

	t.Run("TotalsOfACapabilityStartFromItsAgents", func(t *testing.T) {
		t.Parallel()
		combinations(documentedFilters(), func(name string, q AgentQuery) {
			q.Capabilities = []string{"plan"}
			query, args := s.Agents(t.Context()).countQuery(q)
			plan := explain(t, s, query, args)
			require.NotContains(t, plan, "SCAN agents", "%s\n%s", name, query)
			require.Contains(t, plan, "SEARCH agent_capabilities USING PRIMARY KEY", "%s\n%s", name, query)
		})
	})
}

// TestDetailPlan proves that the detail of an agent finds every row it counts.
func TestDetailPlan(t *testing.T) {
	t.Parallel()
	s, _ := openSQLiteForTest(t)
	plan := explain(t, s, s.engine.detail, []any{"a", "a", "a", 1, "a", 1, "a", 1, "a", 1, 1, "a"})
	for _, table := range []string{"agents", "usage_accounts", "usage_windows", "usage_resets", "outcomes"} {
		require.Contains(t, plan, "SEARCH "+table)
		require.NotContains(t, plan, "SCAN "+table)
	}
}

// TestOwnerPlans proves that what one token asked for is found without reading what
// others did, and not sorted.
func TestOwnerPlans(t *testing.T) {
	t.Parallel()
	s, _ := openSQLiteForTest(t)
	for name, before := range map[string]TaskCursor{"first page": {}, "later page": {ID: "m", CreatedAt: time.Now()}} {
		query, args := tasksQuery(TaskQuery{Owner: "ops", Before: before, Limit: 100})
		plan := explain(t, s, query, args)
		require.Contains(t, plan, "SEARCH tasks USING INDEX tasks_owner (owner=?", name)
		require.NotContains(t, plan, "TEMP B-TREE", name)

		query, args = sessionsQuery(SessionQuery{Owner: "ops", Before: before, Limit: 100})
		plan = explain(t, s, query, args)
		require.Contains(t, plan, "SEARCH sessions USING INDEX sessions_owner (owner=?", name)
		require.NotContains(t, plan, "TEMP B-TREE", name)

		query, args = sessionsQuery(SessionQuery{Before: before, Limit: 100})
		plan = explain(t, s, query, args)
		require.Contains(t, plan, "USING INDEX sessions_created", name)
		require.NotContains(t, plan, "TEMP B-TREE", name)
	}
}
