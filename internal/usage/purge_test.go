package usage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
)

func TestPurge(t *testing.T) {
	t.Parallel()
	keep := func(f *fixture, d time.Duration) { f.Ledger = usage.New(f.db.Store, &usage.Options{Retention: d}) }

	onEachDatabase(t, "ForgetsDaysBeforeTheRetentionBegan", func(t *testing.T, f *fixture) {
		keep(f, 72*time.Hour)
		f.scope(t, "spec", models.ScopeSubtree)
		f.clock(t, "23:59:59.999999")
		_, err := f.report("help", fact(100, named("old"), func(d *usage.FactDraft) { d.Outcome = usage.OutcomeSuccess }))
		require.NoError(t, err)
		f.reset(t, "help")
		f.clock(t, "2026-01-11T00:00:00")
		_, err = f.report("help", fact(20, named("new")))
		require.NoError(t, err)
		f.clock(t, "2026-01-13T23:59:59.999999")
		require.NoError(t, f.Purge(t.Context()))
		require.Equal(t, []int64{100, 20}, f.days(t, "help", "2026-01-10", 2))
		f.clock(t, "2026-01-14T00:00:00")
		require.NoError(t, f.Purge(t.Context()))
		require.Equal(t, []int64{0, 20}, f.days(t, "help", "2026-01-10", 2))
		v, err := f.Verify(t.Context())
		require.NoError(t, err)
		require.Equal(t, "2026-01-11", v.FromDay)
		require.EqualValues(t, 1, v.Facts)
		require.Zero(t, v.Total)

		out, err := f.report("help", fact(20, named("new")))
		require.NoError(t, err)
		require.True(t, out.Facts[0].Replayed)
		out, err = f.report("help", fact(7, named("old")))
		require.NoError(t, err)
		require.False(t, out.Facts[0].Replayed, "a request_id is forgotten with its fact")
		require.EqualValues(t, 7, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "KeepsTwoDaysAtLeast", func(t *testing.T, f *fixture) {
		keep(f, time.Hour)
		f.record(t, "help", 100)
		f.clock(t, "2026-01-12T23:00:00")
		require.NoError(t, f.Purge(t.Context()))
		require.Equal(t, []int64{100}, f.days(t, "help", "2026-01-10", 1))
		f.clock(t, "2026-01-13T00:00:00")
		require.NoError(t, f.Purge(t.Context()))
		require.Equal(t, []int64{0}, f.days(t, "help", "2026-01-10", 1))
	})

	onEachDatabase(t, "LeavesWhatIsHeld", func(t *testing.T, f *fixture) {
		keep(f, 48*time.Hour)
		ended, held := f.hold(t, "help", 10), f.hold(t, "help", 20)
		_, err := f.settle("help", ended.ID, 10)
		require.NoError(t, err)
		f.clock(t, "2026-02-10T00:00:00")
		require.NoError(t, f.Purge(t.Context()))
		_, err = f.Reservation(t.Context(), "help", ended.ID)
		requireCode(t, errs.NotFound, err)
		s, err := f.settle("help", held.ID, 20)
		require.NoError(t, err, "the purge did not release it")
		require.True(t, s.Late)
		f.clock(t, "2026-02-12T23:59:59")
		require.NoError(t, f.Purge(t.Context()))
		_, err = f.Reservation(t.Context(), "help", held.ID)
		require.NoError(t, err, "it ended less than two days ago")
		f.clock(t, "2026-02-13T00:00:00")
		require.NoError(t, f.Purge(t.Context()))
		_, err = f.Reservation(t.Context(), "help", held.ID)
		requireCode(t, errs.NotFound, err)
	})

	// The fact counts on the day of the account, which is ahead of the clock; its
	// reservation, which ended by the clock, is forgotten a day earlier.
	onEachDatabase(t, "ForgetsASettlementAndItsFact", func(t *testing.T, f *fixture) {
		keep(f, 48*time.Hour)
		f.clock(t, "2026-01-11T00:00:01")
		f.record(t, "help", 1)
		f.clock(t, "23:00:00")
		held := f.hold(t, "help", 10)
		_, err := f.settle("help", held.ID, 10)
		require.NoError(t, err)
		for _, day := range []string{"13", "14"} {
			f.clock(t, "2026-01-"+day+"T00:00:00")
			require.NoError(t, f.Purge(t.Context()))
			f.sound(t)
		}
	})

	onEachDatabase(t, "TakesManyRowsInSeveralSteps", func(t *testing.T, f *fixture) {
		keep(f, 48*time.Hour)
		many := make([]usage.FactDraft, usage.MaxFacts)
		for i := range many {
			many[i] = fact(1, func(d *usage.FactDraft) { d.Outcome = usage.OutcomeFailed })
		}
		for _, id := range []string{"help", "aid", "spec"} {
			_, err := f.report(id, many...)
			require.NoError(t, err)
		}
		f.clock(t, "2026-02-10T00:00:00")
		f.record(t, "help", 3)
		require.NoError(t, f.Purge(t.Context()))
		v, err := f.Verify(t.Context())
		require.NoError(t, err)
		require.EqualValues(t, 1, v.Facts)
		require.EqualValues(t, 1, v.Windows)
		f.clock(t, "2026-01-10T00:00:00")
		d, err := f.db.Agents(t.Context()).Detail("aid", f.db.Now())
		require.NoError(t, err)
		require.Zero(t, d.Stats.SessionsToday)
	})

	onEachDatabase(t, "NeverKeepsMoreAgainWhenTheClockGoesBack", func(t *testing.T, f *fixture) {
		keep(f, 48*time.Hour)
		f.record(t, "help", 100)
		f.clock(t, "2026-02-10T00:00:00")
		require.NoError(t, f.Purge(t.Context()))
		f.clock(t, "2026-01-20T00:00:00")
		require.NoError(t, f.Purge(t.Context()))
		v, err := f.Verify(t.Context())
		require.NoError(t, err)
		require.Equal(t, "2026-02-08", v.FromDay)
		f.record(t, "aid", 5)
		f.sound(t)
	})
}
