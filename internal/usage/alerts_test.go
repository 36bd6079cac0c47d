package usage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/internal/orchestrator"
	"comet/internal/usage"
	"comet/models"
)

func TestWarnings(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "FireAtExactly80Percent", func(t *testing.T, f *fixture) {
		f.record(t, "spec", 19_999)
		require.Empty(t, f.alerts(t))
		f.record(t, "spec", 1)
		require.Equal(t, []alert{{events.BudgetWarning, usage.BudgetAlert{
			AgentID: "spec", Day: "2026-01-10", Budget: 25_000, Scope: models.ScopeOwn, Used: 20_000, Remaining: 5_000, Percent: 80,
			ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC),
		}}}, allAlerts(t, f.db))
	})

	onEachDatabase(t, "CountWhatIsUsedAndNotWhatIsReserved", func(t *testing.T, f *fixture) {
		r := f.hold(t, "spec", 25_000)
		require.Empty(t, f.alerts(t))
		_, err := f.settle("spec", r.ID, 20_000)
		require.NoError(t, err)
		got := allAlerts(t, f.db)
		require.Len(t, got, 1)
		require.Equal(t, events.BudgetWarning, got[0].kind)
		require.Zero(t, got[0].Reserved, "the settlement released the held tokens")
		require.EqualValues(t, 5_000, got[0].Remaining)
	})

	onEachDatabase(t, "FireOnceADay", func(t *testing.T, f *fixture) {
		for range 3 {
			f.record(t, "help", 9_000)
		}
		require.Equal(t, []string{"agent.budget_warning help own", "agent.budget_exceeded help own"}, f.alerts(t))
		f.clock(t, "23:59:59.999999")
		f.record(t, "help", 1)
		require.Len(t, f.alerts(t), 2)
		f.clock(t, "2026-01-11T00:00:00")
		f.record(t, "help", 7_999)
		require.Len(t, f.alerts(t), 2)
		f.record(t, "help", 1)
		require.Len(t, f.alerts(t), 3)
		require.Equal(t, "2026-01-11", allAlerts(t, f.db)[2].Day)
	})

	onEachDatabase(t, "FireOnceForAllLedgersOfADatabase", func(t *testing.T, f *fixture) {
		first, second := f.Ledger, usage.New(f.db.Store, nil)
		for range 2 {
			f.Ledger = second
			f.record(t, "help", 9_000)
			f.refused(t, "help", 1_001)
			f.Ledger = first
			f.record(t, "help", 9_000)
			f.refused(t, "help", 1_001)
		}
		require.Equal(t, []string{"agent.budget_warning help own", "agent.budget_exceeded help own"}, f.alerts(t))
	})

	onEachDatabase(t, "FireForEachBudgetThatCountsTheCharge", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.scope(t, "orch", models.ScopeSubtree)
		f.record(t, "other", 60_000)
		require.Len(t, f.alerts(t), 2, "a warning and an excess of its own budget")
		f.record(t, "help", 7_999)
		f.record(t, "aid", 7_999)
		f.record(t, "spec", 4_002)
		require.Equal(t, []alert{{events.BudgetWarning, usage.BudgetAlert{
			AgentID: "spec", Day: "2026-01-10", Budget: 25_000, Scope: models.ScopeSubtree, Used: 20_000, Remaining: 5_000, Percent: 80,
			ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC),
		}}, {events.BudgetWarning, usage.BudgetAlert{
			AgentID: "orch", Day: "2026-01-10", Budget: 100_000, Scope: models.ScopeSubtree, Used: 80_000, Remaining: 20_000, Percent: 80,
			ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC),
		}}}, allAlerts(t, f.db)[2:])
	})

	onEachDatabase(t, "FireOnceADayWhicheverUseCausesThem", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "help", 30_000)
		require.Equal(t, []string{
			"agent.budget_warning help own", "agent.budget_exceeded help own",
			"agent.budget_warning spec subtree", "agent.budget_exceeded spec subtree",
		}, f.alerts(t))
		f.record(t, "spec", 30_000)
		f.refused(t, "spec", 1)
		require.Len(t, f.alerts(t), 4)
	})

	onEachDatabase(t, "OfAnAdditionalBudgetAreOfTheWhole", func(t *testing.T, f *fixture) {
		f.add(t, "help", 10_000, time.Hour)
		f.record(t, "help", 15_999)
		require.Empty(t, f.alerts(t))
		f.record(t, "help", 1)
		require.Equal(t, []string{"agent.budget_warning help own"}, f.alerts(t))
		f.db.Clock.Advance(time.Hour)
		f.record(t, "help", 1)
		require.Equal(t, []string{"agent.budget_warning help own", "agent.budget_exceeded help own"}, f.alerts(t))
	})

	onEachDatabase(t, "AreNotSetOffByAReplay", func(t *testing.T, f *fixture) {
		_, err := f.report("help", fact(7_000, named("r-1")))
		require.NoError(t, err)
		_, err = f.report("help", fact(7_000, named("r-1")), fact(999))
		require.NoError(t, err)
		require.Empty(t, f.alerts(t))
	})
}

func TestExceededBudgets(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "FireAtTheFirstTokenAbove100Percent", func(t *testing.T, f *fixture) {
		f.record(t, "help", 10_000)
		require.Equal(t, []string{"agent.budget_warning help own"}, f.alerts(t))
		f.record(t, "help", 1)
		require.Equal(t, alert{events.BudgetExceeded, usage.BudgetAlert{
			AgentID: "help", Day: "2026-01-10", Budget: 10_000, Scope: models.ScopeOwn, Used: 10_001, Percent: 100,
			ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC),
		}}, allAlerts(t, f.db)[1])
		f.refused(t, "help", 1)
		require.Len(t, f.alerts(t), 2)
	})

	onEachDatabase(t, "FireWhenAReservationIsRefused", func(t *testing.T, f *fixture) {
		f.record(t, "help", 100)
		f.hold(t, "help", 50)
		f.hold(t, "help", 9_850)
		require.Empty(t, f.alerts(t))
		f.refused(t, "help", 7)
		require.Equal(t, []alert{{events.BudgetExceeded, usage.BudgetAlert{
			AgentID: "help", Day: "2026-01-10", Budget: 10_000, Scope: models.ScopeOwn, Used: 100, Reserved: 9_900, Percent: 100,
			Requested: 7, ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC),
		}}}, allAlerts(t, f.db))
		f.refused(t, "help", 7)
		f.record(t, "help", 1)
		require.Len(t, f.alerts(t), 1)
		f.clock(t, "2026-01-11T00:00:00")
		f.refused(t, "help", 10_001)
		require.Len(t, f.alerts(t), 1, "an amount that the empty budget does not cover spends no event")
		f.hold(t, "help", 10_000)
		f.refused(t, "help", 1)
		require.Len(t, f.alerts(t), 2)
	})

	onEachDatabase(t, "FireForTheBudgetThatRefused", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		for range 5 {
			f.add(t, "aid", 2_000, time.Hour)
		}
		f.hold(t, "aid", 20_000)
		require.Equal(t, "spec", f.refused(t, "help", 5_001))
		require.Equal(t, []alert{{events.BudgetExceeded, usage.BudgetAlert{
			AgentID: "spec", Day: "2026-01-10", Budget: 25_000, Scope: models.ScopeSubtree, Reserved: 20_000, Remaining: 5_000, Percent: 80,
			Requested: 5_001, ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC),
		}}}, allAlerts(t, f.db))
	})

	onEachDatabase(t, "AreNotSetOffByOtherRefusals", func(t *testing.T, f *fixture) {
		f.change(t, "help", func(a *models.Agent) { a.IsActive = false })
		_, err := f.reserve("help", 20_000)
		require.Error(t, err)
		_, err = f.reserve("no-such-agent", 20_000)
		require.Error(t, err)
		require.Empty(t, f.alerts(t))
	})

	onEachDatabase(t, "TellTheTruthOfABudgetOf1000", func(t *testing.T, f *fixture) {
		f.change(t, "help", func(a *models.Agent) { a.TokenBudget = new(int64(1_001)) })
		f.record(t, "help", 800)
		require.Empty(t, f.alerts(t), "79.92%")
		f.record(t, "help", 1)
		require.EqualValues(t, 80, allAlerts(t, f.db)[0].Percent)
		f.record(t, "help", 200)
		require.Len(t, f.alerts(t), 1, "the whole budget is used and not exceeded")
		_, err := f.report("help", fact(orchestrator.MaxBudget))
		require.NoError(t, err)
		require.EqualValues(t, (orchestrator.MaxBudget+1_001)*100/1_001, allAlerts(t, f.db)[1].Percent)
	})
}
