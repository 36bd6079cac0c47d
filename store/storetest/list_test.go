package storetest_test

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// population stores about 500 random agents: names and times that repeat, all
// levels, spheres and states, and text that looks like patterns.
func population(t *testing.T, db *storetest.DB) []models.Agent {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 11))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	all := []models.Agent{nova(db)}
	for sphere := 1; sphere <= 9; sphere++ {
		all = append(all, orchestrator(db, fmt.Sprintf("orch-%d", sphere), sphere))
	}
	decorate := func(a models.Agent) models.Agent {
		a.Name = pick("Éclair", "éclair", "Zebra", "apple", "Äpfel", "ÅNGSTRÖM", "ångström", "100% sure", "100x sure", "snake_case", "snakeXcase", "日本", "ß", "Δέλτα", "back\\slash")
		a.Description = pick("", "", "Finances et ÉCONOMIE", "plain", "per%cent", "under_score", "two\nlines", "don't \"quote\"")
		a.SphereID = new(1 + r.IntN(9))
		a.IsActive = r.IntN(4) > 0
		a.CreatedAt = db.Now().Add(-time.Duration(r.IntN(40)) * time.Microsecond)
		a.Capabilities = []string{}
		for _, c := range []string{"plan", "custom:alpha", "alpha", "email", "custom:b_c", "b%c"} {
			if r.IntN(3) == 0 {
				a.Capabilities = append(a.Capabilities, c)
			}
		}
		return a
	}
	for i := range 120 {
		a := specialist(db, fmt.Sprintf("spec-%s-%d", pick("a", "b", "zz"), i), fmt.Sprintf("orch-%d", 1+r.IntN(9)))
		a.FrequencyHz = 555 + 111*r.IntN(2)
		all = append(all, decorate(a))
	}
	for i := range 370 {
		parent := all[10+r.IntN(120)].ID
		all = append(all, decorate(assistant(db, fmt.Sprintf("%s-%d", pick("assist", "help", "a"), i), parent)))
	}
	insert(t, db, all...)
	return all
}

// offers reports whether the agent has the capability under either name.
func offers(a models.Agent, capability string) bool {
	want := strings.TrimPrefix(capability, "custom:")
	return slices.ContainsFunc(a.Capabilities, func(c string) bool { return strings.TrimPrefix(c, "custom:") == want })
}

// selects is the filter a list must agree with.
func selects(q store.AgentQuery, a models.Agent) bool {
	contains := func(s string) bool { return strings.Contains(strings.ToLower(s), strings.ToLower(q.Text)) }
	return (q.SphereID == nil || a.SphereID != nil && *a.SphereID == *q.SphereID) &&
		(q.Level == nil || int(a.Level) == *q.Level) &&
		(q.FrequencyHz == nil || a.FrequencyHz == *q.FrequencyHz) &&
		(q.Active == nil || a.IsActive == *q.Active) &&
		(q.ParentID == nil || a.ParentID != nil && *a.ParentID == *q.ParentID) &&
		!slices.ContainsFunc(q.Capabilities, func(c string) bool { return !offers(a, c) }) &&
		(contains(a.ID) || contains(a.Name) || contains(a.Description))
}

// expected returns what the whole list must be.
func expected(all []models.Agent, q store.AgentQuery) []models.Agent {
	var out []models.Agent
	for _, a := range all {
		if selects(q, a) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(a, b models.Agent) int {
		var c int
		switch q.Sort {
		case "name":
			c = bytes.Compare([]byte(a.Name), []byte(b.Name))
		case "level":
			c = cmp.Compare(a.Level, b.Level)
		case "created_at":
			c = a.CreatedAt.Compare(b.CreatedAt)
		}
		c = cmp.Or(c, bytes.Compare([]byte(a.ID), []byte(b.ID)))
		if q.Descending {
			return -c
		}
		return c
	})
	return out
}

func sorts() []string {
	return []string{"id", "name", "level", "created_at"}
}

// randomQuery sets each filter with some chance.
func randomQuery(r *rand.Rand, all []models.Agent) store.AgentQuery {
	q := store.AgentQuery{Limit: 1 + r.IntN(60), Sort: sorts()[r.IntN(4)], Descending: r.IntN(2) == 0, Count: true}
	chance := func(n int) bool { return r.IntN(n) == 0 }
	if chance(4) {
		q.SphereID = new(1 + r.IntN(9))
	}
	if chance(4) {
		q.Level = new(r.IntN(4))
	}
	if chance(5) {
		q.FrequencyHz = new([]int{444, 555, 666, 888, 999, 777, 111, 5}[r.IntN(8)])
	}
	if chance(3) {
		q.Active = new(chance(2))
	}
	if chance(5) {
		q.ParentID = new(all[r.IntN(130)].ID)
	}
	names := []string{"plan", "custom:plan", "alpha", "custom:alpha", "email", "b_c", "b%c", "nothing"}
	for range r.IntN(6) / 2 {
		q.Capabilities = append(q.Capabilities, names[r.IntN(len(names))])
	}
	if chance(3) {
		q.Text = []string{"a", "%", "_", "100%", "e_c", "É", "é", "éCL", "ÄPF", "ångström", "ΔΈΛΤΑ", "日", "SS", "ß", "\\", "'", "\"", "spec-a", "two\nl", "nothing like it"}[r.IntN(20)]
	}
	return q
}

func TestListAgreesWithANaiveFilter(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		all := population(t, db)
		r := rand.New(rand.NewPCG(3, 5))
		selected := 0
		for range 600 {
			q := randomQuery(r, all)
			if r.IntN(3) == 0 {
				q.Offset = r.IntN(80)
			}
			want := expected(all, q)
			selected += len(want)
			page, err := db.Agents(t.Context()).List(q)
			require.NoError(t, err)
			require.EqualValues(t, len(want), *page.Total, "%+v", q)
			want = want[min(q.Offset, len(want)):]
			require.Equal(t, len(want) > q.Limit, page.More, "%+v", q)
			require.Equal(t, ids(want[:min(q.Limit, len(want))]), ids(page.Agents), "%+v", q)
		}
		require.Greater(t, selected, 5000, "the queries select something")
	})
}

func TestCursorPagesVisitEverythingOnce(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		all := population(t, db)
		filters := map[string]store.AgentQuery{
			"everything": {},
			"a sphere":   {SphereID: new(3)},
			"active L3":  {Level: new(3), Active: new(true)},
			"a search":   {Text: "É", Capabilities: []string{"alpha"}},
			"a parent":   {ParentID: new("orch-4")},
		}
		for name, filter := range filters {
			for _, sort := range sorts() {
				for _, descending := range []bool{false, true} {
					q := filter
					q.Sort, q.Descending, q.Limit = sort, descending, 37
					require.Equal(t, ids(expected(all, q)), ids(walk(t, db, q)), "%s by %s, descending %v", name, sort, descending)
				}
			}
		}
	})
}

// walk follows the cursor to the end.
func walk(t *testing.T, db *storetest.DB, q store.AgentQuery) []models.Agent {
	t.Helper()
	var visited []models.Agent
	for {
		page, err := db.Agents(t.Context()).List(q)
		require.NoError(t, err)
		require.Nil(t, page.Total, "a total is counted only when it is asked for")
		visited = append(visited, page.Agents...)
		if !page.More {
			return visited
		}
		require.Len(t, page.Agents, q.Limit)
		last := page.Agents[q.Limit-1]
		q.After = &store.AgentPosition{Name: last.Name, Level: int(last.Level), CreatedAt: last.CreatedAt, ID: last.ID}
		q.Offset = 5 // has no meaning beside After
	}
}

func TestListOrderIsBinary(t *testing.T) {
	t.Parallel()
	rule(t, "ForNamesAndIDs", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		names := []string{"a", "B", "b", "A", "é", "É", "_", "-", "Z", "z", "ä", "10", "9", " "}
		for i, name := range names {
			a := assistant(db, fmt.Sprintf("%c-%d", 'z'-i, i), "health")
			a.Name = name
			insert(t, db, a)
		}
		page, err := db.Agents(t.Context()).List(store.AgentQuery{ParentID: new("health"), Sort: "name", Limit: 100})
		require.NoError(t, err)
		var got []string
		for _, a := range page.Agents {
			got = append(got, a.Name)
		}
		slices.Sort(names)
		require.Equal(t, names, got)
		page, err = db.Agents(t.Context()).List(store.AgentQuery{Limit: 100})
		require.NoError(t, err)
		require.IsIncreasing(t, ids(page.Agents))
	})
}

func TestEmptyList(t *testing.T) {
	t.Parallel()
	rule(t, "IsAnEmptyListAndTheTotalZero", func(t *testing.T, db *storetest.DB) {
		for _, q := range []store.AgentQuery{{}, {FrequencyHz: new(777)}, {Text: "x"}, {Offset: 10}} {
			q.Limit, q.Count = 10, true
			page, err := db.Agents(t.Context()).List(q)
			require.NoError(t, err)
			require.Equal(t, store.AgentPage{Agents: []models.Agent{}, Total: new(int64(0))}, page)
		}
	})
}

func TestEachAgent(t *testing.T) {
	t.Parallel()
	rule(t, "VisitsByLevelAndIDAndStopsAtAnError", func(t *testing.T, db *storetest.DB) {
		all := population(t, db)
		var got []models.Agent
		require.NoError(t, db.Agents(t.Context()).Each(func(a models.Agent) error { got = append(got, a); return nil }))
		require.Equal(t, expected(all, store.AgentQuery{Sort: "level"}), got)
		seen := 0
		err := db.Agents(t.Context()).Each(func(models.Agent) error {
			if seen++; seen == 3 {
				return errStop
			}
			return nil
		})
		require.ErrorIs(t, err, errStop)
		require.Equal(t, 3, seen)
	})
}
