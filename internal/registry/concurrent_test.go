package registry_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
)

// answers are the codes a request of the generator may be answered with. Conflict,
// Busy and Internal are not among them: with any number of callers each receives the violated
// rule.
func answers() []errs.Code {
	return []errs.Code{
		"", errs.InvalidRequest, errs.InvalidFrequency, errs.ParentNotFound, errs.InvalidParentLevel, errs.ImmutableField, errs.NotFound, errs.MissingScope,
		errs.AgentExists, errs.SystemAgentExists, errs.ProtectedAgent, errs.ActiveChildren, errs.ParentInactive, errs.BudgetExceedsMaximum, errs.PreconditionFailed,
	}
}

// TestTheTreesRulesHoldUnderConcurrency lets many clients change the tree at once
// while a relay numbers the events. In the middle of every batch and after it the
// whole tree, its index, its history and its events must agree.
func TestTheTreesRulesHoldUnderConcurrency(t *testing.T) {
	t.Parallel()
	const clients, batches = 8, 6
	s := testkit.Seed(t)
	onEveryDatabase(t, func(t *testing.T, f *fixture) {
		stop := f.relay(t)
		var went, refused atomic.Int64
		for batch := range uint64(batches) {
			var wg sync.WaitGroup
			for client := range uint64(clients) {
				wg.Go(func() {
					g := newGenerator(s, batch*clients+client+1)
					for range scaled(42) {
						o := f.next(t, g)
						if err := f.request(t, o); err == nil {
							went.Add(1)
						} else if refused.Add(1); !slices.Contains(answers(), errs.CodeOf(err)) {
							t.Errorf("%s\nanswered with: %v", o, err)
						}
					}
				})
			}
			wg.Go(func() {
				for _, b := range f.snapshot(t).broken() {
					t.Errorf("in the middle of batch %d: %s", batch, b)
				}
			})
			wg.Wait()
			require.Empty(t, f.snapshot(t).broken(), "after batch %d", batch)
		}
		stop()
		require.NoError(t, f.number(t.Context()))
		requireOrdered(t, f.snapshot(t).events)
		require.Greater(t, went.Load(), int64(clients*batches))
		require.Greater(t, refused.Load(), int64(clients*batches))
	})
}

// next returns a random request; some are amended exports, as a client sends one that does not know
// of concurrent changes.
func (f *fixture) next(t *testing.T, g generator) operation {
	t.Helper()
	o := g.operation()
	if o.verb != load || !g.chance(40) {
		return o
	}
	o.by, o.entries = admin(), nil
	all, err := f.Export(t.Context(), models.RootAgentID)
	for _, a := range all {
		o.entries = append(o.entries, entryOf(a))
	}
	if err != nil {
		t.Errorf("export: %v", err)
	}
	g.amend(o.entries)
	return o
}

// relay numbers events until the function it returns is called.
func (f *fixture) relay(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.db.EventsWritten():
			}
			err := f.db.Write(context.WithoutCancel(ctx), func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err })
			if err != nil {
				t.Errorf("number the events: %v", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// requireOrdered proves that positions have no gap and keep each agent's order.
func requireOrdered(t *testing.T, events []models.Event) {
	t.Helper()
	last, positions := map[string]int64{}, []int64{}
	for _, e := range events {
		require.Greater(t, e.Position, last[e.Key], "an event of %s", e.Key)
		last[e.Key] = e.Position
		positions = append(positions, e.Position)
	}
	slices.Sort(positions)
	for i, p := range positions {
		require.EqualValues(t, i+1, p)
	}
}

// TestAChildAndTheEndOfItsParentExcludeEachOther brings together, many times, the
// two requests that could each be right alone.
func TestAChildAndTheEndOfItsParentExcludeEachOther(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, f *fixture) {
		for i := range scaled(80) {
			parent, child, restored := idOf("p", i, 0), idOf("c", i, 0), idOf("r", i, 0)
			f.create(t, specialist(parent, "orch-social"), assistant(restored, parent))
			f.deactivate(t, restored)
			var created, ended, back error
			var wg sync.WaitGroup
			wg.Go(func() { _, created = f.Create(t.Context(), writer(), assistant(child, parent), nil) })
			wg.Go(func() { ended = f.Deactivate(t.Context(), writer(), parent, nil) })
			wg.Go(func() { back = f.patch(t, restored, registry.AgentPatch{IsActive: models.Some(true)}) })
			wg.Wait()
			if ended == nil {
				require.Equal(t, errs.ParentInactive, errs.CodeOf(created))
				require.Equal(t, errs.ParentInactive, errs.CodeOf(back))
			} else {
				require.Equal(t, errs.ActiveChildren, errs.CodeOf(ended))
				require.True(t, created == nil || back == nil, "another change interfered")
			}
		}
		require.Empty(t, f.snapshot(t).broken())
	})
}
