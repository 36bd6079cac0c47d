package usage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/requestid"
	"comet/internal/usage"
	"comet/models"
)

func TestAdditionalBudgets(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "CountUntilTheMicrosecondOfTheirExpiry", func(t *testing.T, f *fixture) {
		f.add(t, "help", 5_000, time.Hour)
		u := f.usage(t, "help")
		require.EqualValues(t, 15_000, *u.Budget)
		require.EqualValues(t, 5_000, u.AdditionalBudget)
		f.record(t, "help", 12_000)
		f.hold(t, "help", 3_000)
		f.refused(t, "help", 1)
		f.db.Clock.Advance(time.Hour - time.Microsecond)
		require.EqualValues(t, 3_000, f.left(t, "help"))
		require.NoError(t, f.release("help", f.hold(t, "help", 3_000).ID))
		f.db.Clock.Advance(time.Microsecond)
		u = f.usage(t, "help")
		require.EqualValues(t, 10_000, *u.Budget)
		require.Zero(t, u.AdditionalBudget)
		require.Zero(t, *u.Remaining)
		f.refused(t, "help", 1)
	})

	onEachDatabase(t, "OverlapAndEndOneByOne", func(t *testing.T, f *fixture) {
		f.add(t, "help", 1_000, 3*time.Hour)
		f.add(t, "help", 20, time.Hour)
		f.add(t, "help", 300, 2*time.Hour)
		for _, want := range []int64{11_320, 11_300, 11_000, 10_000, 10_000} {
			require.Equal(t, want, f.left(t, "help"))
			f.refused(t, "help", want+1)
			require.NoError(t, f.release("help", f.hold(t, "help", want).ID))
			f.db.Clock.Advance(time.Hour)
		}
	})

	onEachDatabase(t, "AreAddedToEachDaysBudget", func(t *testing.T, f *fixture) {
		f.add(t, "help", 5_000, 25*time.Hour)
		f.record(t, "help", 15_000)
		f.refused(t, "help", 1)
		f.clock(t, "2026-01-11T00:00:00")
		f.record(t, "help", 14_999)
		f.hold(t, "help", 1)
		f.clock(t, "2026-01-11T16:30:00")
		require.Zero(t, f.left(t, "help"))
		f.clock(t, "2026-01-12T00:00:00")
		f.refused(t, "help", 10_001)
		f.hold(t, "help", 10_000)
	})

	onEachDatabase(t, "CountOnTheSubtreesBudgetToo", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "help", 25_000)
		require.Equal(t, "spec", f.refused(t, "aid", 1))
		f.add(t, "spec", 100, time.Hour)
		require.EqualValues(t, 100, f.leftBelow(t, "spec"))
		f.hold(t, "aid", 100)
		require.Equal(t, "spec", f.refused(t, "aid", 1))
	})

	onEachDatabase(t, "AreTakenBackAtOnce", func(t *testing.T, f *fixture) {
		f.add(t, "help", 1_000, time.Hour)
		second := f.add(t, "help", 500, 2*time.Hour)
		f.db.Clock.Advance(time.Minute)
		require.NoError(t, f.RemoveBudget(t.Context(), models.System(), "help", second.ID))
		require.EqualValues(t, 11_000, f.left(t, "help"))
		f.refused(t, "help", 11_001)
		requireCode(t, errs.NotFound, f.RemoveBudget(t.Context(), models.System(), "help", second.ID))
		requireCode(t, errs.NotFound, f.RemoveBudget(t.Context(), models.System(), "aid", second.ID))
		requireCode(t, errs.NotFound, f.RemoveBudget(t.Context(), models.System(), "no-such-agent", second.ID))
		f.db.Clock.Advance(2 * time.Hour)
		requireCode(t, errs.NotFound, f.RemoveBudget(t.Context(), models.System(), "help", f.add(t, "aid", 1, time.Hour).ID))
	})

	onEachDatabase(t, "AreListedNewestFirst", func(t *testing.T, f *fixture) {
		first := f.add(t, "help", 1_000, time.Hour)
		require.Equal(t, models.BudgetAddition{
			ID: first.ID, AgentID: "help", Tokens: 1_000, Reason: "a busy day", ExpiresAt: f.db.Now().Add(time.Hour),
			CreatedAt: f.db.Now(), CreatedBy: "system", Active: true,
		}, first)
		second, third := f.add(t, "help", 2, 2*time.Hour), f.add(t, "help", 3, 3*time.Hour)
		require.NoError(t, f.RemoveBudget(t.Context(), models.System(), "help", third.ID))
		f.db.Clock.Advance(time.Hour)
		list, err := f.Budgets(t.Context(), "help", false)
		require.NoError(t, err)
		require.Equal(t, []models.BudgetAddition{second}, list)
		list, err = f.Budgets(t.Context(), "help", true)
		require.NoError(t, err)
		first.Active, third.Active, third.ExpiresAt = false, false, f.db.Now().Add(-time.Hour)
		require.Equal(t, []models.BudgetAddition{third, second, first}, list)
		list, err = f.Budgets(t.Context(), "aid", true)
		require.NoError(t, err)
		require.Empty(t, list)
		_, err = f.Budgets(t.Context(), "no-such-agent", false)
		requireCode(t, errs.NotFound, err)
	})

	onEachDatabase(t, "Are100AtATime", func(t *testing.T, f *fixture) {
		for i := range 100 {
			f.add(t, "help", 1, time.Hour+time.Duration(i/99)*time.Hour)
		}
		again := usage.BudgetAdditionDraft{Tokens: new(int64(1)), ExpiresAt: new(f.db.Now().Add(time.Hour)), Reason: new("more")}
		_, err := f.AddBudget(t.Context(), models.System(), "help", again, nil)
		requireCode(t, errs.LimitReached, err)
		require.EqualValues(t, 10_100, f.left(t, "help"))
		f.add(t, "aid", 1, time.Hour)
		f.db.Clock.Advance(time.Hour)
		f.add(t, "help", 1, time.Hour)
		require.EqualValues(t, 10_002, f.left(t, "help"), "additions that have ended do not count")
	})

	onEachDatabase(t, "AreJudgedFieldByField", func(t *testing.T, f *fixture) {
		add := func(id string, tokens *int64, term time.Duration, reason *string) error {
			d := usage.BudgetAdditionDraft{Tokens: tokens, ExpiresAt: new(f.db.Now().Add(term)), Reason: reason}
			_, err := f.AddBudget(t.Context(), models.System(), id, d, nil)
			return err
		}
		one, why := new(int64(1)), new("why")
		requireFields(t, []string{"/tokens min"}, add("help", new(int64(0)), time.Hour, why))
		requireFields(t, []string{"/tokens max"}, add("help", new(int64(orchestrator.MaxBudget+1)), time.Hour, why))
		requireFields(t, []string{"/tokens required", "/reason required"}, add("help", nil, time.Hour, nil))
		requireFields(t, []string{"/reason not_blank"}, add("help", one, time.Hour, new(" ")))
		requireFields(t, []string{"/expires_at future"}, add("help", one, 0, why))
		requireFields(t, []string{"/expires_at max"}, add("help", one, 366*24*time.Hour+time.Microsecond, why))
		_, err := f.AddBudget(t.Context(), models.System(), "help", usage.BudgetAdditionDraft{Tokens: one, Reason: why}, nil)
		requireFields(t, []string{"/expires_at required"}, err)
		for ttl, field := range map[int64]string{0: "/ttl_seconds min", 366*24*3600 + 1: "/ttl_seconds max"} {
			_, err := f.AddBudget(t.Context(), models.System(), "help", usage.BudgetAdditionDraft{Tokens: one, Reason: why, TTLSeconds: &ttl}, nil)
			requireFields(t, []string{field}, err)
		}
		_, err = f.AddBudget(t.Context(), models.System(), "help", usage.BudgetAdditionDraft{Tokens: one, Reason: why, TTLSeconds: one, ExpiresAt: new(f.db.Now().Add(time.Hour))}, nil)
		requireFields(t, []string{"/expires_at required"}, err)
		requireCode(t, errs.InvalidRequest, add("nova", one, time.Hour, why))
		requireCode(t, errs.NotFound, add("no-such-agent", one, time.Hour, why))
		require.EqualValues(t, 10_000, f.left(t, "help"))
		require.Empty(t, f.trail(t, "help"))
		require.Empty(t, f.trail(t, "nova"))
		require.NoError(t, add("help", new(int64(orchestrator.MaxBudget)), 366*24*time.Hour, why))
		require.NoError(t, add("help", one, time.Microsecond, why))
	})

	onEachDatabase(t, "AreInTheAuditTrailWithTheirReason", func(t *testing.T, f *fixture) {
		by := models.Principal{TokenID: "token-1", Name: "ops"}
		ctx := requestid.With(t.Context(), "request-1")
		d := usage.BudgetAdditionDraft{Tokens: new(int64(500)), ExpiresAt: new(f.db.Now().Add(time.Hour)), Reason: new("month-end closing")}
		f.change(t, "help", func(a *models.Agent) { a.Version = 7 })
		f.add(t, "help", 1_000, time.Hour)
		a, err := f.AddBudget(ctx, by, "help", d, nil)
		require.NoError(t, err)
		require.Equal(t, "ops", a.CreatedBy)
		require.NoError(t, f.RemoveBudget(ctx, by, "help", a.ID))
		trail := f.trail(t, "help")
		require.Len(t, trail, 3)
		require.Equal(t, models.AuditEntry{
			ID: trail[1].ID, AgentID: "help", At: f.db.Now(), Actor: "ops", ActorID: "token-1", Action: models.AuditBudgetAdded, RequestID: "request-1",
			Changes: []models.Change{{Field: "additional_budget", From: 1_000.0, To: 1_500.0}}, Reason: "month-end closing", Version: 7,
		}, trail[1])
		require.Equal(t, models.AuditBudgetRemoved, trail[0].Action)
		require.Equal(t, []models.Change{{Field: "additional_budget", From: 1_500.0, To: 1_000.0}}, trail[0].Changes)
	})

	// An addition that has ended stays ended, and the shown budget is the one that decides.
	onEachDatabase(t, "DoNotBeginAgainWhenTheClockGoesBack", func(t *testing.T, f *fixture) {
		f.add(t, "help", 1_000, time.Hour)
		f.add(t, "help", 20, 2*time.Hour)
		f.db.Clock.Advance(time.Hour)
		f.record(t, "help", 1)
		f.db.Clock.Advance(-30 * time.Minute)
		require.EqualValues(t, 10_019, f.left(t, "help"))
		require.EqualValues(t, 20, f.usage(t, "help").AdditionalBudget)
		f.refused(t, "help", 10_020)
		f.hold(t, "help", 10_019)
	})
}

// trail returns an agent's audit log, newest first.
func (f *fixture) trail(t *testing.T, id string) []models.AuditEntry {
	t.Helper()
	list, err := f.db.Agents(t.Context()).AuditTrail(id, 0, 1000)
	require.NoError(t, err)
	return list
}

func TestResets(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "FreeTheWholeBudgetButForWhatIsReserved", func(t *testing.T, f *fixture) {
		f.record(t, "help", 9_000)
		held := f.hold(t, "help", 1_000)
		f.refused(t, "help", 1)
		b := f.reset(t, "help")
		require.Equal(t, usage.Balance{
			Budget: new(int64(10_000)), Reserved: 1_000, Remaining: new(int64(9_000)), ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC),
		}, b)
		u := f.usage(t, "help")
		require.Zero(t, u.UsedToday)
		require.EqualValues(t, 9_000, u.ForgivenToday)
		require.EqualValues(t, 9_000, u.SubtreeUsedToday, "a reset deletes no facts")
		require.EqualValues(t, 9_000, f.subtree(t, "orch"), "the tokens were spent")
		require.Equal(t, []int64{9_000}, f.days(t, "help", "2026-01-10", 1))
		d, err := f.db.Agents(t.Context()).Detail("help", f.db.Now())
		require.NoError(t, err)
		require.Zero(t, d.TokensUsedToday)
		tree, err := f.Tree(t.Context())
		require.NoError(t, err)
		require.Zero(t, tree.Used["help"])
		require.EqualValues(t, 9_000, tree.SubtreeUsed["help"])
		_, err = f.settle("help", held.ID, 1_000)
		require.NoError(t, err)
		f.hold(t, "help", 9_000)
		f.refused(t, "help", 1)
		f.reset(t, "help")
		require.EqualValues(t, 10_000, f.usage(t, "help").ForgivenToday)
		require.EqualValues(t, 1_000, f.left(t, "help"))
		f.clock(t, "2026-01-11T00:00:00")
		require.Zero(t, f.usage(t, "help").ForgivenToday)
		f.record(t, "help", 10)
		require.EqualValues(t, 10, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "OfASubtreesBudgetWriteOffTheRollUp", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.scope(t, "orch", models.ScopeSubtree)
		f.record(t, "help", 9_000)
		f.record(t, "spec", 16_000)
		require.Equal(t, "spec", f.refused(t, "aid", 1))
		f.reset(t, "spec")
		require.EqualValues(t, 25_000, f.leftBelow(t, "spec"))
		require.EqualValues(t, 25_000, f.left(t, "spec"))
		require.EqualValues(t, 25_000, f.subtree(t, "spec"), "a reset does not change the roll-up")
		require.EqualValues(t, 75_000, f.leftBelow(t, "orch"), "the sums of its ancestors do not change")
		require.EqualValues(t, 1_000, f.left(t, "help"), "the usage of its descendants does not change")
		f.hold(t, "aid", 10_000)
		f.hold(t, "spec", 15_000)
		require.Equal(t, "spec", f.refused(t, "help", 1))
		f.record(t, "help", 1)
		f.reset(t, "spec")
		require.Zero(t, f.leftBelow(t, "spec"))
	})

	onEachDatabase(t, "OfAnOwnBudgetLeaveARollUpThatCountsLaterAsItIs", func(t *testing.T, f *fixture) {
		f.record(t, "spec", 20_000)
		f.reset(t, "spec")
		f.scope(t, "spec", models.ScopeSubtree)
		require.EqualValues(t, 5_000, f.leftBelow(t, "spec"))
		require.EqualValues(t, 5_000, f.left(t, "spec"))
		require.Equal(t, "spec", f.refused(t, "aid", 5_001))
		f.hold(t, "aid", 5_000)
		f.reset(t, "spec")
		require.EqualValues(t, 20_000, f.leftBelow(t, "spec"))
		f.scope(t, "spec", models.ScopeOwn)
		f.record(t, "spec", 3)
		f.scope(t, "spec", models.ScopeSubtree)
		require.EqualValues(t, 19_997, f.leftBelow(t, "spec"), "tokens that were written off stay written off")
		f.hold(t, "aid", 5_000)
	})

	onEachDatabase(t, "LetTheEventsBeSentAgain", func(t *testing.T, f *fixture) {
		f.record(t, "help", 10_001)
		require.Len(t, f.alerts(t), 2)
		f.reset(t, "help")
		f.record(t, "help", 10_001)
		f.refused(t, "help", 1)
		require.Len(t, f.alerts(t), 4)
		f.add(t, "help", 20_000, time.Hour)
		f.record(t, "help", 10_000)
		require.Len(t, f.alerts(t), 4)
		f.record(t, "help", 10_000)
		require.Len(t, f.alerts(t), 6)
		f.clock(t, "2026-01-11T00:00:00")
		f.record(t, "help", 10_001)
		require.Len(t, f.alerts(t), 8)
	})

	onEachDatabase(t, "AreInTheAuditTrailWithTheirReason", func(t *testing.T, f *fixture) {
		f.reset(t, "spec")
		require.Empty(t, f.trail(t, "spec"), "there was nothing to write off")
		f.record(t, "spec", 700)
		f.record(t, "help", 50)
		_, err := f.Reset(t.Context(), models.Principal{TokenID: "token-1", Name: "ops"}, "spec", usage.ResetDraft{Reason: new("runaway loop")}, nil)
		require.NoError(t, err)
		trail := f.trail(t, "spec")
		require.Len(t, trail, 1)
		require.Equal(t, models.AuditEntry{
			ID: trail[0].ID, AgentID: "spec", At: f.db.Now(), Actor: "ops", ActorID: "token-1", Action: models.AuditUsageReset,
			Changes: []models.Change{{Field: "used_today", From: 700.0, To: 0.0}}, Reason: "runaway loop", Version: 1,
		}, trail[0])
		f.scope(t, "spec", models.ScopeSubtree)
		f.reset(t, "spec")
		require.Equal(t, []models.Change{{Field: "subtree_used_today", From: 750.0, To: 0.0}}, f.trail(t, "spec")[0].Changes)
	})

	onEachDatabase(t, "NeedAReasonAndAnAgent", func(t *testing.T, f *fixture) {
		_, err := f.Reset(t.Context(), models.System(), "help", usage.ResetDraft{}, nil)
		requireFields(t, []string{"/reason required"}, err)
		_, err = f.Reset(t.Context(), models.System(), "no-such-agent", usage.ResetDraft{Reason: new("why")}, nil)
		requireCode(t, errs.NotFound, err)
	})
}
