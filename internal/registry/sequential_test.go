package registry_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/registry/roster"
	"comet/internal/testkit"
	"comet/models"
)

// TestTheRegistryAnswersAsTheModelDoes makes random requests one after another
// and compares every answer and the whole tree after it with the model's: once
// from a seed that is known to meet every rule, once from another one.
func TestTheRegistryAnswersAsTheModelDoes(t *testing.T) {
	t.Parallel()
	t.Run("KnownSeed", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, f *fixture) { requireVaried(t, answersAsTheModel(t, f, 1, scaled(1200))) })
	})
	t.Run("OtherSeed", func(t *testing.T) {
		t.Parallel()
		s := testkit.Seed(t)
		onEveryDatabase(t, func(t *testing.T, f *fixture) { answersAsTheModel(t, f, s, scaled(600)) })
	})
}

// answersAsTheModel makes n requests and returns how often which verb was
// answered how.
func answersAsTheModel(t *testing.T, f *fixture, s uint64, n int) map[verb]map[errs.Code]int {
	t.Helper()
	m := &model{agents: map[string]models.Agent{}, lines: 10}
	for _, a := range f.all(t) {
		m.agents[a.ID] = a
	}
	g := newGenerator(s, 0)
	outcomes := map[verb]map[errs.Code]int{create: {}, update: {}, remove: {}, load: {}}
	for i := range n {
		f.db.Clock.Advance(time.Millisecond)
		m.now = f.db.Now()
		o := g.operation()
		if o.verb == load && g.chance(25) {
			o.entries = g.amended(m)
		}
		want := m.apply(o)
		got := f.apply(t, o)
		require.Equal(t, want, got, "request %d: %s", i, o)
		requireSame(t, m, f, i, o)
		outcomes[o.verb][got]++
	}
	require.Empty(t, f.snapshot(t).broken())
	require.Len(t, f.snapshot(t).audit, m.lines)
	return outcomes
}

func (m *model) apply(o operation) errs.Code {
	switch o.verb {
	case create:
		return m.create(o.by, o.draft)
	case update:
		return m.update(o.by, o.id, o.patch, o.precondition())
	case remove:
		return m.remove(o.id, o.precondition())
	default:
		return m.load(o.by, o.entries)
	}
}

// apply makes the request and returns the code of its answer. Before an import
// it makes a dry run, which must foretell it.
func (f *fixture) apply(t *testing.T, o operation) errs.Code {
	t.Helper()
	if o.verb == load {
		return f.applyImport(t, o)
	}
	return errs.CodeOf(f.request(t, o))
}

func (f *fixture) applyImport(t *testing.T, o operation) errs.Code {
	t.Helper()
	doc, found := roster.Parse([]byte(render(o.entries).text), input.YAML)
	foretold, dryErr := f.Import(t.Context(), o.by, doc, slices.Clone(found), true, nil)
	done, err := f.Import(t.Context(), o.by, doc, found, false, nil)
	switch {
	case errs.Is(err, errs.MissingScope):
		require.Equal(t, err, dryErr)
	case err != nil:
		require.NoError(t, dryErr)
		require.False(t, foretold.Valid)
		require.Equal(t, lined(foretold.Violations), lined(errs.From(err).Fields))
	default:
		require.NoError(t, dryErr)
		done.DryRun = true
		require.Equal(t, foretold, done)
	}
	return errs.CodeOf(err)
}

// request makes a request without looking at more than its error.
func (f *fixture) request(t *testing.T, o operation) error {
	t.Helper()
	var err error
	switch o.verb {
	case create:
		_, err = f.Create(t.Context(), o.by, o.draft, nil)
	case update:
		_, err = f.Update(t.Context(), o.by, o.id, o.patch, o.precondition())
	case remove:
		err = f.Deactivate(t.Context(), o.by, o.id, o.precondition())
	default:
		doc, found := roster.Parse([]byte(render(o.entries).text), input.YAML)
		_, err = f.Import(t.Context(), o.by, doc, found, false, nil)
	}
	return err
}

func requireSame(t *testing.T, m *model, f *fixture, i int, o operation) {
	t.Helper()
	all := f.all(t)
	got := make(map[string]models.Agent, len(all))
	for _, a := range all {
		got[a.ID] = a
	}
	if !maps.EqualFunc(m.agents, got, func(a, b models.Agent) bool {
		return same(a, b) && a.Level == b.Level && a.FrequencyHz == b.FrequencyHz && a.Version == b.Version &&
			a.CreatedAt.Equal(b.CreatedAt) && a.UpdatedAt.Equal(b.UpdatedAt)
	}) {
		require.Equal(t, m.agents, got, "after request %d: %s", i, o)
	}
}

// requireVaried proves that the requests met what they were made for: every verb
// goes through and is refused, and every rule refuses.
func requireVaried(t *testing.T, outcomes map[verb]map[errs.Code]int) {
	t.Helper()
	if testing.Short() || costly > 1 {
		return // too few of them
	}
	all := map[errs.Code]int{}
	for v, codes := range outcomes {
		require.Greater(t, codes[""], 20, "verb %d: %v", v, codes)
		require.Greater(t, len(codes), 4, "verb %d: %v", v, codes)
		for code, n := range codes {
			all[code] += n
		}
	}
	for _, code := range []errs.Code{
		errs.InvalidRequest, errs.InvalidFrequency, errs.ParentNotFound, errs.InvalidParentLevel, errs.ImmutableField, errs.NotFound, errs.MissingScope,
		errs.AgentExists, errs.SystemAgentExists, errs.ProtectedAgent, errs.ActiveChildren, errs.ParentInactive, errs.BudgetExceedsMaximum,
		errs.PreconditionFailed,
	} {
		require.Positive(t, all[code], "nothing met %q: %v", code, outcomes)
	}
}

// amended is an export of the tree with a few changes, as people work with one.
func (g generator) amended(m *model) []rosterEntry {
	ids := slices.Sorted(maps.Keys(m.agents))
	entries := make([]rosterEntry, 0, len(ids))
	for _, id := range ids {
		entries = append(entries, entryOf(m.agents[id]))
	}
	return g.amend(entries)
}

func (g generator) amend(entries []rosterEntry) []rosterEntry {
	for range 1 + g.IntN(4) {
		e := &entries[g.IntN(len(entries))]
		switch g.IntN(6) {
		case 0:
			e.active = new(!*e.active)
		case 1:
			e.ParentID = new(g.parent(*e.Level, 5))
		case 2:
			e.Name = new("Amended " + strings.Repeat("x", g.IntN(3)))
		case 3: // with everything below it
			off := map[string]bool{*e.ID: true}
			for range 3 {
				for k := range entries {
					if p := entries[k].ParentID; p != nil && off[*p] {
						off[*entries[k].ID] = true
					}
				}
			}
			for k := range entries {
				if off[*entries[k].ID] {
					entries[k].active = new(false)
				}
			}
		case 4:
			e.Capabilities = g.capabilities(2)
		case 5:
			e.BudgetScope = models.Some(g.scope(*e.Level, 2))
		}
	}
	return entries
}
