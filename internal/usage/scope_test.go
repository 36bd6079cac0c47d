package usage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/models"
)

func TestSubtreeBudgets(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "CoverWhatTheAgentAndAllBelowItUseTogether", func(t *testing.T, f *fixture) {
		f.scope(t, "orch", models.ScopeSubtree)
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "help", 4_000)
		f.record(t, "aid", 3_000)
		f.record(t, "spec", 2_000)
		f.record(t, "other", 1_000)
		f.hold(t, "aid", 500)
		f.hold(t, "other", 70)
		require.EqualValues(t, 25_000-9_500, f.leftBelow(t, "spec"))
		require.EqualValues(t, 100_000-10_570, f.leftBelow(t, "orch"))
		require.Nil(t, f.usage(t, "other").SubtreeRemaining)
		require.EqualValues(t, 15_500, f.left(t, "spec"), "remaining is the smaller one of both")
	})

	onEachDatabase(t, "RefuseTheNearestFirstAndItsOwnBeforeThat", func(t *testing.T, f *fixture) {
		f.scope(t, "orch", models.ScopeSubtree)
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "other", 95_000)
		f.record(t, "spec", 24_000)
		require.Equal(t, "help", f.refused(t, "help", 10_001))
		require.Equal(t, "spec", f.refused(t, "help", 1_001))
		require.Equal(t, "orch", f.refused(t, "help", 1_000))
		f.reset(t, "orch")
		f.hold(t, "help", 1_000)
		_, err := f.reserve("spec", 1)
		require.Equal(t, map[string]any{
			"agent_id": "spec", "scope": models.ScopeSubtree, "budget": int64(25_000), "used": int64(24_000), "reserved": int64(1_000),
			"remaining": int64(0), "requested": int64(1), "reset_at": time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), "retry_after": 5,
		}, errs.From(err).Meta)
	})

	onEachDatabase(t, "HoldNothingAnywhereWhenOneRefuses", func(t *testing.T, f *fixture) {
		f.scope(t, "orch", models.ScopeSubtree)
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "other", 100_000)
		require.Equal(t, "orch", f.refused(t, "help", 1))
		require.Zero(t, f.usage(t, "help").Reserved)
		require.EqualValues(t, 25_000, f.leftBelow(t, "spec"))
	})

	onEachDatabase(t, "CountWhatHappenedWhileTheyWereOwn", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "help", 1_000)
		before := f.hold(t, "help", 200)
		f.scope(t, "spec", models.ScopeOwn)
		require.Nil(t, f.usage(t, "spec").SubtreeRemaining)
		f.record(t, "aid", 3_000)
		f.record(t, "spec", 10)
		during := f.hold(t, "aid", 40)
		_, err := f.settle("help", before.ID, 150)
		require.NoError(t, err)
		gone := f.hold(t, "help", 5_000)
		require.NoError(t, f.release("help", gone.ID))
		f.scope(t, "spec", models.ScopeSubtree)
		require.EqualValues(t, 25_000-4_160-40, f.leftBelow(t, "spec"), "before the first decision")
		require.Equal(t, "spec", f.refused(t, "spec", 25_000-4_160-40+1))
		require.EqualValues(t, 25_000-4_160-40, f.leftBelow(t, "spec"), "and after it")
		_, err = f.settle("aid", during.ID, 100)
		require.NoError(t, err)
		f.hold(t, "spec", 25_000-4_260)
		require.Equal(t, "spec", f.refused(t, "help", 1))
		f.sound(t)
	})

	onEachDatabase(t, "BeginWithoutWhatHasExpired", func(t *testing.T, f *fixture) {
		f.hold(t, "help", 10_000)
		f.db.Clock.Advance(time.Minute)
		f.hold(t, "aid", 6_000)
		f.scope(t, "spec", models.ScopeSubtree)
		f.db.Clock.Advance(4 * time.Minute)
		require.EqualValues(t, 19_000, f.leftBelow(t, "spec"))
		f.hold(t, "spec", 19_000)
		require.Equal(t, "spec", f.refused(t, "spec", 1))
		f.sound(t)
		f.db.Clock.Advance(time.Minute)
		require.EqualValues(t, 6_000, f.leftBelow(t, "spec"))
		f.hold(t, "help", 6_000)
		require.Equal(t, "spec", f.refused(t, "help", 1))
	})

	onEachDatabase(t, "OfAnUnlimitedAgentLimitNoAgent", func(t *testing.T, f *fixture) {
		f.scope(t, "nova", models.ScopeSubtree)
		f.record(t, "help", 1_000)
		f.hold(t, "nova", orchestrator.MaxBudget)
		u := f.usage(t, "nova")
		require.Nil(t, u.SubtreeRemaining)
		require.EqualValues(t, 1_000, u.SubtreeUsedToday)
	})
}

func TestMoves(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "LeaveSpendWhereItWasSpent", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.scope(t, "other", models.ScopeSubtree)
		f.record(t, "help", 1_000)
		f.move(t, "help", "other")
		f.record(t, "help", 20)
		require.EqualValues(t, 1_020, f.usage(t, "help").UsedToday)
		require.EqualValues(t, 1_020, f.subtree(t, "help"))
		require.EqualValues(t, 1_000, f.subtree(t, "spec"))
		require.EqualValues(t, 20, f.subtree(t, "other"))
		require.EqualValues(t, 24_000, f.leftBelow(t, "spec"))
		require.EqualValues(t, 24_980, f.leftBelow(t, "other"))
		require.EqualValues(t, 1_020, f.subtree(t, "orch"))
		f.hold(t, "help", 8_980)
		require.EqualValues(t, 16_000, f.leftBelow(t, "other"))
		require.EqualValues(t, 24_000, f.leftBelow(t, "spec"))
	})

	onEachDatabase(t, "LeaveAReservationWithThoseWhoGrantedIt", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.scope(t, "other", models.ScopeSubtree)
		settled, released, expired := f.hold(t, "help", 1_000), f.hold(t, "help", 200), f.hold(t, "help", 30)
		f.move(t, "help", "other")
		require.EqualValues(t, 25_000-1_230, f.leftBelow(t, "spec"))
		require.EqualValues(t, 25_000, f.leftBelow(t, "other"))
		_, err := f.settle("help", settled.ID, 1_100)
		require.NoError(t, err)
		require.NoError(t, f.release("help", released.ID))
		require.EqualValues(t, 25_000-1_130, f.leftBelow(t, "spec"))
		require.EqualValues(t, 25_000, f.leftBelow(t, "other"))
		require.EqualValues(t, 1_100, f.subtree(t, "spec"))
		require.Zero(t, f.subtree(t, "other"))
		f.sound(t)
		f.db.Clock.Advance(300 * time.Second)
		require.EqualValues(t, 25_000-1_100, f.leftBelow(t, "spec"))
		f.record(t, "rival", 1)
		require.EqualValues(t, 25_000-1_100, f.leftBelow(t, "spec"))
		f.sound(t)
		s, err := f.settle("help", expired.ID, 5)
		require.NoError(t, err)
		require.True(t, s.Late)
		require.EqualValues(t, 1_105, f.subtree(t, "spec"))
	})

	onEachDatabase(t, "OfASpecialistTakeItsAssistantsAlong", func(t *testing.T, f *fixture) {
		for _, id := range []string{"spec", "orch", "rival"} {
			f.scope(t, id, models.ScopeSubtree)
		}
		f.record(t, "help", 1_000)
		held := f.hold(t, "aid", 200)
		f.move(t, "spec", "rival")
		f.record(t, "help", 30)
		_, err := f.settle("aid", held.ID, 200)
		require.NoError(t, err)
		f.hold(t, "aid", 4)
		for id, want := range map[string]int64{"nova": 1_230, "orch": 1_200, "rival": 30, "spec": 1_230} {
			require.Equal(t, want, f.subtree(t, id), id)
		}
		require.EqualValues(t, 100_000-1_200, f.leftBelow(t, "orch"))
		require.EqualValues(t, 100_000-34, f.leftBelow(t, "rival"))
		require.EqualValues(t, 25_000-1_234, f.leftBelow(t, "spec"))
		f.move(t, "spec", "orch")
		f.record(t, "help", 5)
		require.EqualValues(t, 1_205, f.subtree(t, "orch"))
		require.EqualValues(t, 30, f.subtree(t, "rival"))
		f.scope(t, "spec", models.ScopeOwn)
		f.scope(t, "spec", models.ScopeSubtree)
		require.EqualValues(t, 25_000-1_239, f.leftBelow(t, "spec"), "a new sum of the subtree has the same value")
		f.hold(t, "aid", 1)
		require.EqualValues(t, 25_000-1_240, f.leftBelow(t, "spec"))
	})

	onEachDatabase(t, "ChangeNothingForWhoIsDeactivatedAndRestored", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "help", 1_000)
		held := f.hold(t, "help", 200)
		f.change(t, "help", func(a *models.Agent) { a.IsActive = false })
		require.EqualValues(t, 23_800, f.leftBelow(t, "spec"))
		require.NoError(t, f.release("help", held.ID))
		f.move(t, "help", "other")
		f.change(t, "help", func(a *models.Agent) { a.IsActive = true })
		f.hold(t, "help", 9_000)
		f.refused(t, "help", 1)
		require.EqualValues(t, 24_000, f.leftBelow(t, "spec"))
	})
}

func TestTree(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "SumsUpEveryAgentsDay", func(t *testing.T, f *fixture) {
		f.clock(t, "2026-01-09T23:00:00")
		f.record(t, "help", 77)
		f.clock(t, "00:00:00")
		f.record(t, "help", 1)
		f.record(t, "aid", 20)
		f.reset(t, "aid")
		f.record(t, "aid", 3)
		f.record(t, "rival", 500)
		f.record(t, "nova", 7_000)
		tree, err := f.Tree(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"help": 1, "aid": 3, "rival": 500, "nova": 7_000}, tree.Used)
		require.Equal(t, map[string]int64{"help": 1, "aid": 23, "spec": 24, "orch": 24, "rival": 500, "nova": 7_524}, tree.SubtreeUsed)
		for id, want := range tree.SubtreeUsed {
			require.Equal(t, want, f.subtree(t, id), id)
		}
	})
}
