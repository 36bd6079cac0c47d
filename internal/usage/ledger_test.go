package usage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
)

func TestUsage(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, "IsTheDocumentsExample", func(t *testing.T, f *fixture) {
		f.db.Clock.Advance(-2 * time.Hour)
		f.record(t, "spec", 10_400)
		f.db.Clock.Advance(2 * time.Hour)
		f.record(t, "spec", 2_100)
		u := f.usage(t, "spec")
		require.Equal(t, usage.AgentUsage{
			AgentID: "spec", Budget: new(int64(25_000)), UsedToday: 12_500, UsedThisHour: 2_100, Remaining: new(int64(12_500)),
			ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), BudgetScope: models.ScopeOwn, SubtreeUsedToday: 12_500,
		}, u)
	})

	onEachDatabase(t, "OfNovaIsUnlimited", func(t *testing.T, f *fixture) {
		f.record(t, "nova", 1_000_000_000)
		_, err := f.reserve("nova", 1_000_000_000_000)
		require.NoError(t, err)
		u := f.usage(t, "nova")
		require.Nil(t, u.Budget)
		require.Nil(t, u.Remaining)
		require.EqualValues(t, 1_000_000_000_000, u.Reserved)
		require.Empty(t, f.alerts(t))
	})

	onEachDatabase(t, "RollsUpToEveryAncestorAsTheyWereThen", func(t *testing.T, f *fixture) {
		f.record(t, "help", 100)
		f.record(t, "spec", 10)
		f.record(t, "orch", 1)
		f.change(t, "spec", func(a *models.Agent) { a.ParentID = new("rival") })
		f.record(t, "help", 1_000)
		for id, want := range map[string]int64{"nova": 1_111, "orch": 111, "rival": 1_000, "spec": 1_110, "help": 1_100, "aid": 0} {
			require.Equal(t, want, f.usage(t, id).SubtreeUsedToday, id)
		}
		tree, err := f.Tree(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"nova": 1_111, "orch": 111, "rival": 1_000, "spec": 1_110, "help": 1_100}, tree.SubtreeUsed)
		require.Equal(t, map[string]int64{"orch": 1, "spec": 10, "help": 1_100}, tree.Used)
	})

	onEachDatabase(t, "ReservationHoldsSettlesAndReleases", func(t *testing.T, f *fixture) {
		r, err := f.reserve("spec", 20_000)
		require.NoError(t, err)
		_, err = f.reserve("spec", 5_001)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		last, err := f.reserve("spec", 5_000)
		require.NoError(t, err)
		require.EqualValues(t, 25_000, f.usage(t, "spec").Reserved)
		s, err := f.settle("spec", r.ID, 30_000)
		require.NoError(t, err, "the actual usage is recorded, whatever was held")
		require.EqualValues(t, 30_000, s.Balance.UsedToday)
		again, err := f.settle("spec", r.ID, 30_000)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		_, err = f.settle("spec", r.ID, 29_999)
		require.Equal(t, errs.ReservationEnded, errs.CodeOf(err))
		require.NoError(t, f.Release(t.Context(), "spec", last.ID))
		require.NoError(t, f.Release(t.Context(), "spec", last.ID))
		require.Equal(t, errs.ReservationEnded, errs.CodeOf(f.Release(t.Context(), "spec", r.ID)))
		u := f.usage(t, "spec")
		require.Zero(t, u.Reserved)
		require.Zero(t, *u.Remaining)
		require.Equal(t, []string{"agent.budget_exceeded spec own", "agent.budget_warning spec own"}, f.alerts(t))
	})

	onEachDatabase(t, "ReservationExpiresAndIsSettledLate", func(t *testing.T, f *fixture) {
		r, err := f.reserve("spec", 25_000)
		require.NoError(t, err)
		f.db.Clock.Advance(300*time.Second - time.Microsecond)
		_, err = f.reserve("spec", 1)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		f.db.Clock.Advance(time.Microsecond)
		require.Zero(t, f.usage(t, "spec").Reserved)
		full, err := f.reserve("spec", 25_000)
		require.NoError(t, err)
		s, err := f.settle("spec", r.ID, 7)
		require.NoError(t, err)
		require.True(t, s.Late)
		require.NoError(t, f.Release(t.Context(), "spec", full.ID))
		require.EqualValues(t, 7, f.usage(t, "spec").UsedToday)
	})

	onEachDatabase(t, "SubtreeScopeIsEnforcedOnTheRollUp", func(t *testing.T, f *fixture) {
		f.record(t, "help", 9_000)
		f.change(t, "spec", func(a *models.Agent) { a.BudgetScope = models.ScopeSubtree })
		held, err := f.reserve("aid", 10_000)
		require.NoError(t, err)
		require.EqualValues(t, 6_000, *f.usage(t, "spec").SubtreeRemaining)
		_, err = f.reserve("spec", 6_001)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		require.Equal(t, models.ScopeSubtree, errs.From(err).Meta["scope"])
		rest, err := f.reserve("spec", 6_000)
		require.NoError(t, err)
		_, err = f.reserve("help", 1)
		require.Equal(t, "spec", errs.From(err).Meta["agent_id"])
		f.change(t, "spec", func(a *models.Agent) { a.BudgetScope = models.ScopeOwn })
		_, err = f.reserve("help", 1)
		require.NoError(t, err)
		f.change(t, "spec", func(a *models.Agent) { a.BudgetScope = models.ScopeSubtree })
		_, err = f.settle("aid", held.ID, 10_000)
		require.NoError(t, err)
		_, err = f.settle("spec", rest.ID, 6_000)
		require.NoError(t, err)
		require.Zero(t, *f.usage(t, "spec").SubtreeRemaining)
	})
}
