package usage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/usage"
	"comet/models"
)

func TestDays(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "BeginAtMidnightUTCToTheMicrosecond", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.clock(t, "23:59:59.999999")
		f.record(t, "help", 9_000)
		require.EqualValues(t, 9_000, f.usage(t, "help").UsedThisHour)
		require.Equal(t, time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), f.usage(t, "help").ResetAt)
		f.db.Clock.Advance(time.Microsecond)
		u := f.usage(t, "help")
		require.Zero(t, u.UsedToday)
		require.Zero(t, u.UsedThisHour)
		require.EqualValues(t, 10_000, *u.Remaining)
		require.Equal(t, time.Date(2026, 1, 12, 0, 0, 0, 0, time.UTC), u.ResetAt)
		require.Zero(t, f.subtree(t, "spec"))
		require.EqualValues(t, 25_000, f.leftBelow(t, "spec"))
		f.record(t, "help", 1)
		require.EqualValues(t, 1, f.usage(t, "help").UsedToday)
		require.EqualValues(t, 24_999, f.leftBelow(t, "spec"))
	})

	onEachDatabase(t, "HaveHours", func(t *testing.T, f *fixture) {
		f.clock(t, "15:59:59.999999")
		f.record(t, "help", 5)
		f.db.Clock.Advance(time.Microsecond)
		require.Zero(t, f.usage(t, "help").UsedThisHour)
		f.record(t, "help", 7)
		u := f.usage(t, "help")
		require.EqualValues(t, 7, u.UsedThisHour)
		require.EqualValues(t, 12, u.UsedToday)
		require.Zero(t, f.usage(t, "spec").UsedThisHour, "the hour counts the agent's own usage only")
	})

	onEachDatabase(t, "AreSpannedByAReservation", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.clock(t, "23:59:00")
		f.record(t, "help", 6_000)
		r := f.hold(t, "help", 4_000)
		f.refused(t, "help", 1)
		f.clock(t, "2026-01-11T00:00:00")
		require.EqualValues(t, 4_000, f.usage(t, "help").Reserved, "it counts against the budget of the new day")
		require.EqualValues(t, 6_000, f.left(t, "help"))
		require.EqualValues(t, 21_000, f.leftBelow(t, "spec"))
		f.refused(t, "help", 6_001)
		s, err := f.settle("help", r.ID, 3_000)
		require.NoError(t, err)
		require.EqualValues(t, 3_000, s.Balance.UsedToday, "and its settlement counts on the new day")
		require.EqualValues(t, 7_000, f.left(t, "help"))
		require.EqualValues(t, 22_000, f.leftBelow(t, "spec"))
		days := f.days(t, "help", "2026-01-10", 2)
		require.Equal(t, []int64{6_000, 3_000}, days)
	})

	onEachDatabase(t, "NeverGoBackWhenTheClockDoes", func(t *testing.T, f *fixture) {
		f.clock(t, "2026-01-11T00:00:01")
		f.record(t, "help", 100)
		f.clock(t, "23:00:00")
		u := f.usage(t, "help")
		require.EqualValues(t, 100, u.UsedToday, "the account stays on its day")
		require.EqualValues(t, 100, u.UsedThisHour)
		require.Equal(t, time.Date(2026, 1, 12, 0, 0, 0, 0, time.UTC), u.ResetAt)
		got := f.record(t, "help", 10)
		require.Equal(t, time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), got.At, "not before the day of the account")
		require.EqualValues(t, 110, f.usage(t, "help").UsedToday)
		require.EqualValues(t, 110, f.usage(t, "help").UsedThisHour)
		d, err := f.db.Agents(t.Context()).Detail("help", f.db.Now())
		require.NoError(t, err)
		require.EqualValues(t, 110, d.TokensUsedToday)

		got = f.record(t, "aid", 5)
		require.Equal(t, f.db.Now(), got.At, "a new account is on the day of the clock")
		f.clock(t, "2026-01-11T00:00:02")
		require.EqualValues(t, 110, f.usage(t, "help").UsedToday)
		require.Zero(t, f.usage(t, "aid").UsedToday)
	})

	onEachDatabase(t, "AreOneForAllThatARollUpCounts", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.clock(t, "2026-01-11T00:00:01")
		f.record(t, "help", 100)
		f.clock(t, "23:00:00")
		got := f.record(t, "aid", 5)
		require.Equal(t, time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), got.At, "it is moved to the day of the roll-up")
		require.EqualValues(t, 105, f.subtree(t, "spec"))
		require.EqualValues(t, 5, f.usage(t, "aid").UsedToday)
		other := f.record(t, "other", 1)
		require.Equal(t, f.db.Now(), other.At)
	})

	onEachDatabase(t, "AreOneForAllRollUpsOnAPath", func(t *testing.T, f *fixture) {
		f.record(t, "spec", 7)
		f.scope(t, "spec", models.ScopeSubtree)
		f.scope(t, "orch", models.ScopeSubtree)
		f.record(t, "help", 20)
		f.clock(t, "2026-01-11T00:00:01")
		f.record(t, "other", 100)
		f.clock(t, "23:00:00")
		got := f.record(t, "help", 5)
		require.Equal(t, time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), got.At)
		require.EqualValues(t, 105, f.subtree(t, "orch"))
		require.EqualValues(t, 5, f.subtree(t, "spec"), "it moved to the later day together with the nearer account")
		require.EqualValues(t, 24_995, f.leftBelow(t, "spec"))
		require.Equal(t, "spec", f.refused(t, "spec", 24_996))
	})

	onEachDatabase(t, "OfARollUpThatBeginsToCountAreTheLatestBelowIt", func(t *testing.T, f *fixture) {
		f.clock(t, "2026-01-11T00:00:01")
		f.record(t, "help", 100)
		f.clock(t, "23:00:00")
		f.record(t, "aid", 5)
		f.scope(t, "spec", models.ScopeSubtree)
		f.hold(t, "spec", 24_900)
		require.EqualValues(t, 100, f.subtree(t, "spec"))
		require.Equal(t, "spec", f.refused(t, "aid", 1), "the roll-up of the later day is full")
	})

	onEachDatabase(t, "StayTheSameWhenTheClockGoesBackWithinOne", func(t *testing.T, f *fixture) {
		f.record(t, "help", 100)
		f.clock(t, "03:00:00")
		got := f.record(t, "help", 10)
		require.Equal(t, f.db.Now(), got.At)
		u := f.usage(t, "help")
		require.EqualValues(t, 110, u.UsedToday)
		require.EqualValues(t, 10, u.UsedThisHour)
		r := f.hold(t, "help", 5)
		require.Equal(t, f.db.Now().Add(300*time.Second), r.ExpiresAt)
	})

	onEachDatabase(t, "AWrongClockSentAheadAreTodayAgain", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "help", 8_000)
		f.clock(t, "2027-01-11T12:00:00")
		f.record(t, "help", 9_000)
		f.clock(t, "2026-01-10T16:00:00")
		require.EqualValues(t, 8_000, f.usage(t, "help").UsedToday)
		require.EqualValues(t, 17_000, *f.usage(t, "spec").SubtreeRemaining)
		f.sound(t)
		got := f.record(t, "help", 100)
		require.Equal(t, f.db.Now(), got.At)
		u := f.usage(t, "help")
		require.EqualValues(t, 8_100, u.UsedToday)
		require.Equal(t, time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), u.ResetAt)
		require.EqualValues(t, 8_100, f.subtree(t, "spec"))
		require.EqualValues(t, 16_900, *f.usage(t, "spec").SubtreeRemaining)
		require.Equal(t, "help", f.refused(t, "help", 1_901))
		f.sound(t)
		f.clock(t, "2026-01-11T00:00:00")
		require.Zero(t, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "AreTheirOwnForABudgetThatWasLowered", func(t *testing.T, f *fixture) {
		f.record(t, "help", 5_000)
		held := f.hold(t, "help", 1_000)
		require.Empty(t, f.alerts(t))
		f.change(t, "help", func(a *models.Agent) { a.TokenBudget = new(int64(2_000)) })
		u := f.usage(t, "help")
		require.Zero(t, *u.Remaining)
		require.EqualValues(t, 2_000, *u.Budget)
		require.Empty(t, f.alerts(t), "no decision was made yet")
		f.refused(t, "help", 1)
		require.Equal(t, []string{"agent.budget_warning help own", "agent.budget_exceeded help own"}, f.alerts(t))
		f.record(t, "help", 1)
		_, err := f.settle("help", held.ID, 1_000)
		require.NoError(t, err)
		require.EqualValues(t, 6_001, f.usage(t, "help").UsedToday)
		require.Len(t, f.alerts(t), 2)
		f.clock(t, "2026-01-11T00:00:00")
		f.hold(t, "help", 2_000)
		f.refused(t, "help", 1)
	})
}

// days returns the usage of an agent on n days, beginning with the given one.
func (f *fixture) days(t *testing.T, id, from string, n int) []int64 {
	t.Helper()
	first, err := time.Parse(time.DateOnly, from)
	require.NoError(t, err)
	list, err := f.History(t.Context(), id, usage.HistoryQuery{Window: usage.WindowDay, From: first, To: first.AddDate(0, 0, n)})
	require.NoError(t, err)
	require.Len(t, list, n)
	var out []int64
	for _, b := range list {
		out = append(out, b.Tokens)
	}
	return out
}
