package usage_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/usage"
	"comet/models"
)

func TestFacts(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "AreRecordedWhateverTheBudget", func(t *testing.T, f *fixture) {
		f.record(t, "help", 10_000)
		f.record(t, "help", 1)
		f.record(t, "help", 1_000_000)
		require.EqualValues(t, 1_010_001, f.usage(t, "help").UsedToday)
		require.Zero(t, f.left(t, "help"))
		require.Equal(t, "help", f.refused(t, "help", 1))
	})

	onEachDatabase(t, "OfADeactivatedAgentAreRecorded", func(t *testing.T, f *fixture) {
		f.change(t, "help", func(a *models.Agent) { a.IsActive = false })
		f.record(t, "help", 5)
		require.EqualValues(t, 5, f.usage(t, "help").UsedToday)
		require.EqualValues(t, 5, f.subtree(t, "spec"))
	})

	onEachDatabase(t, "AreReturnedAsTheyAreKept", func(t *testing.T, f *fixture) {
		labels := models.FactLabels{TaskID: "task-7", Model: "gpt", Kind: "chat"}
		out, err := f.report("help", fact(7, named("r-1"), func(d *usage.FactDraft) { d.FactLabels = labels }))
		require.NoError(t, err)
		got := out.Facts[0]
		require.NotEmpty(t, got.ID)
		require.Equal(t, models.Fact{
			ID: got.ID, AgentID: "help", At: f.db.Now(), Tokens: 7, FactLabels: labels, RequestID: "r-1", Path: "nova/orch/spec/help", Digest: got.Digest,
		}, got)
		require.Equal(t, usage.Balance{
			Budget: new(int64(10_000)), UsedToday: 7, Remaining: new(int64(9_993)), ResetAt: time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC),
		}, out.Balance)
	})

	onEachDatabase(t, "OfAnUnknownAgentAreNot", func(t *testing.T, f *fixture) {
		_, err := f.report("no-such-agent", fact(1))
		requireCode(t, errs.NotFound, err)
	})

	onEachDatabase(t, "FillAnAgentsDay", func(t *testing.T, f *fixture) {
		day := make([]usage.FactDraft, usage.MaxFacts)
		for i := range day {
			day[i] = fact(orchestrator.MaxBudget)
		}
		day[0].RequestID = new("first")
		_, err := f.report("spec", day...)
		require.NoError(t, err)
		held := f.hold(t, "help", 10)
		require.Equal(t, int64(usage.MaxTokensADay), f.usage(t, "spec").UsedToday)
		_, err = f.report("spec", fact(1, named("more")))
		requireCode(t, errs.LimitReached, err)
		out, err := f.report("spec", day[0])
		require.NoError(t, err, "a recorded fact is recognised")
		require.True(t, out.Facts[0].Replayed)
		_, err = f.report("help", day[1:]...)
		require.NoError(t, err)
		_, err = f.settle("help", held.ID, orchestrator.MaxBudget+1)
		requireCode(t, errs.InvalidRequest, err)
		_, err = f.report("help", fact(orchestrator.MaxBudget))
		require.NoError(t, err)
		_, err = f.settle("help", held.ID, 1)
		requireCode(t, errs.LimitReached, err)
		require.EqualValues(t, 10, f.usage(t, "help").Reserved, "it was not settled")
		f.clock(t, "2026-01-11T00:00:00")
		_, err = f.report("spec", fact(1, named("more")))
		require.NoError(t, err)
		require.EqualValues(t, 1, f.usage(t, "spec").UsedToday)
	})
}

func TestRequestIDs(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "CountOnceHoweverOftenTheyAreSent", func(t *testing.T, f *fixture) {
		first, err := f.report("help", fact(5, named("r-1")))
		require.NoError(t, err)
		f.clock(t, "2026-01-12T09:00:00")
		again, err := f.report("help", fact(5, named("r-1")))
		require.NoError(t, err)
		want := first.Facts[0]
		want.Replayed = true
		require.Equal(t, want, again.Facts[0], "the fact of two days ago is returned")
		require.Zero(t, again.Balance.UsedToday)
		require.Zero(t, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "WithAnotherContentAreRefused", func(t *testing.T, f *fixture) {
		_, err := f.report("help", fact(5, named("r-1")))
		require.NoError(t, err)
		for name, d := range map[string]usage.FactDraft{
			"tokens":   fact(6, named("r-1")),
			"label":    fact(5, named("r-1"), func(d *usage.FactDraft) { d.Model = "gpt" }),
			"outcome":  fact(5, named("r-1"), func(d *usage.FactDraft) { d.Outcome = usage.OutcomeSuccess }),
			"duration": fact(5, named("r-1"), func(d *usage.FactDraft) { d.Outcome, d.DurationMS = usage.OutcomeSuccess, new(int64(1)) }),
		} {
			_, err := f.report("help", d)
			requireCode(t, errs.RequestIDReused, err)
			require.Equal(t, "/facts/0/request_id", errs.From(err).Fields[0].Pointer, name)
		}
		require.EqualValues(t, 5, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "AreEachAgentsOwn", func(t *testing.T, f *fixture) {
		_, err := f.report("help", fact(5, named("r-1")))
		require.NoError(t, err)
		out, err := f.report("aid", fact(6, named("r-1")))
		require.NoError(t, err)
		require.False(t, out.Facts[0].Replayed)
		require.EqualValues(t, 11, f.subtree(t, "spec"))
	})

	onEachDatabase(t, "LetABatchPassWholeOrNotAtAll", func(t *testing.T, f *fixture) {
		_, err := f.report("help", fact(5, named("old")))
		require.NoError(t, err)
		_, err = f.report("help", fact(1, named("new")), fact(2), fact(6, named("old")), fact(3))
		requireCode(t, errs.RequestIDReused, err)
		require.Equal(t, "/facts/2/request_id", errs.From(err).Fields[0].Pointer)
		require.EqualValues(t, 5, f.usage(t, "help").UsedToday)
		out, err := f.report("help", fact(1, named("new")), fact(5, named("old")), fact(3))
		require.NoError(t, err)
		require.Equal(t, []bool{false, true, false}, replayed(out), "nothing of the first batch was recorded")
		require.EqualValues(t, 9, out.Balance.UsedToday)
	})

	onEachDatabase(t, "TwiceInABatchCountOnce", func(t *testing.T, f *fixture) {
		out, err := f.report("help", fact(5, named("r-1")), fact(7), fact(5, named("r-1")), fact(5, named("r-2")), fact(5, named("r-1")))
		require.NoError(t, err)
		require.Equal(t, []bool{false, false, true, false, true}, replayed(out))
		require.Equal(t, out.Facts[0].ID, out.Facts[2].ID)
		require.Equal(t, out.Facts[0].ID, out.Facts[4].ID)
		require.NotEqual(t, out.Facts[0].ID, out.Facts[3].ID)
		require.Equal(t, out.Facts[0].At, out.Facts[4].At)
		require.EqualValues(t, 17, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "TwiceInABatchWithAnotherContentAreRefused", func(t *testing.T, f *fixture) {
		_, err := f.report("help", fact(5, named("r-1")), fact(6, named("r-1")))
		requireCode(t, errs.RequestIDReused, err)
		require.Equal(t, "/facts/1/request_id", errs.From(err).Fields[0].Pointer)
		require.Zero(t, f.usage(t, "help").UsedToday)
		out, err := f.report("help", fact(6, named("r-1")))
		require.NoError(t, err)
		require.False(t, out.Facts[0].Replayed)
	})
}

// replayed returns for each fact whether it had been recorded before.
func replayed(r usage.Recorded) []bool {
	var out []bool
	for _, f := range r.Facts {
		out = append(out, f.Replayed)
	}
	return out
}

func TestDrafts(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 129)

	onEachDatabase(t, "AreJudgedFieldByField", func(t *testing.T, f *fixture) {
		for want, d := range map[string]usage.FactDraft{
			"/facts/0/tokens required":       {},
			"/facts/0/tokens min":            fact(0),
			"/facts/0/tokens max":            fact(orchestrator.MaxBudget + 1),
			"/facts/0/task_id max":           fact(1, func(d *usage.FactDraft) { d.TaskID = long }),
			"/facts/0/task_id not_blank":     fact(1, func(d *usage.FactDraft) { d.TaskID = " " }),
			"/facts/0/model max":             fact(1, func(d *usage.FactDraft) { d.Model = long }),
			"/facts/0/model printable":       fact(1, func(d *usage.FactDraft) { d.Model = "a\x00" }),
			"/facts/0/kind max":              fact(1, func(d *usage.FactDraft) { d.Kind = long[:65] }),
			"/facts/0/outcome oneof":         fact(1, func(d *usage.FactDraft) { d.Outcome = "fine" }),
			"/facts/0/duration_ms min":       fact(1, func(d *usage.FactDraft) { d.Outcome, d.DurationMS = "failed", new(int64(-1)) }),
			"/facts/0/duration_ms max":       fact(1, func(d *usage.FactDraft) { d.Outcome, d.DurationMS = "failed", new(int64(2_592_000_001)) }),
			"/facts/0/duration_ms outcome":   fact(1, func(d *usage.FactDraft) { d.DurationMS = new(int64(1)) }),
			"/facts/0/session_id outcome":    fact(1, func(d *usage.FactDraft) { d.SessionID = "s" }),
			"/facts/0/session_id max":        fact(1, func(d *usage.FactDraft) { d.Outcome, d.SessionID = "failed", long }),
			"/facts/0/request_id max":        fact(1, named(long)),
			"/facts/0/request_id not_blank":  fact(1, named("\t")),
			"/facts/0/request_id printable":  fact(1, named("a\u0085b")),
			"/facts/0/session_id not_blank":  fact(1, func(d *usage.FactDraft) { d.Outcome, d.SessionID = "failed", "\u200b" }),
			"/facts/0/session_id printable":  fact(1, func(d *usage.FactDraft) { d.Outcome, d.SessionID = "failed", "a\nb" }),
			"/facts/0/model not_blank":       fact(1, func(d *usage.FactDraft) { d.Model = "  " }),
			"/facts/0/kind printable":        fact(1, func(d *usage.FactDraft) { d.Kind = "a\tb" }),
			"/facts/0/task_id printable":     fact(1, func(d *usage.FactDraft) { d.TaskID = "\xff" }),
			"/facts/0/kind not_blank":        fact(1, func(d *usage.FactDraft) { d.Kind = " " }),
			"/facts/0/tokens min (negative)": fact(-5),
		} {
			_, err := f.report("help", d)
			want, _, _ = strings.Cut(want, " (")
			requireFields(t, []string{want}, err)
		}
		require.Zero(t, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "OfABatchAreAllJudged", func(t *testing.T, f *fixture) {
		_, err := f.report("help", fact(1), fact(0), fact(1, func(d *usage.FactDraft) { d.Kind, d.SessionID = " ", "s" }))
		requireFields(t, []string{"/facts/1/tokens min", "/facts/2/kind not_blank", "/facts/2/session_id outcome"}, err)
		require.Zero(t, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "Are1To1000ARequest", func(t *testing.T, f *fixture) {
		_, err := f.report("help")
		requireFields(t, []string{"/facts count"}, err)
		many := make([]usage.FactDraft, usage.MaxFacts+1)
		for i := range many {
			many[i] = fact(1)
		}
		_, err = f.report("help", many...)
		requireFields(t, []string{"/facts count"}, err)
		out, err := f.report("help", many[1:]...)
		require.NoError(t, err)
		require.Len(t, out.Facts, usage.MaxFacts)
		require.EqualValues(t, usage.MaxFacts, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "OfASettlementAreJudgedAlike", func(t *testing.T, f *fixture) {
		held := f.hold(t, "help", 10)
		for want, d := range map[string]usage.Settlement{
			"/tokens required":     {},
			"/tokens min":          {Tokens: new(int64(-1))},
			"/tokens max":          {Tokens: new(int64(orchestrator.MaxBudget + 1))},
			"/model max":           {Tokens: new(int64(1)), FactLabels: models.FactLabels{Model: long}},
			"/outcome oneof":       {Tokens: new(int64(1)), FactOutcome: usage.FactOutcome{Outcome: "fine"}},
			"/duration_ms outcome": {Tokens: new(int64(1)), FactOutcome: usage.FactOutcome{DurationMS: new(int64(1))}},
			"/session_id outcome":  {Tokens: new(int64(1)), FactOutcome: usage.FactOutcome{SessionID: "s"}},
		} {
			_, err := f.Settle(t.Context(), "help", held.ID, d, nil)
			requireFields(t, []string{want}, err)
		}
		require.EqualValues(t, 10, f.usage(t, "help").Reserved)
	})
}

func TestOutcomes(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "FeedTheStatisticsOfTheAgent", func(t *testing.T, f *fixture) {
		ended := func(o usage.Outcome, ms *int64, session, task string) func(*usage.FactDraft) {
			return func(d *usage.FactDraft) { d.Outcome, d.DurationMS, d.SessionID, d.TaskID = o, ms, session, task }
		}
		_, err := f.report("help",
			fact(1, ended(usage.OutcomeSuccess, new(int64(100)), "s-1", "t-1"), named("r-1")),
			fact(1, ended(usage.OutcomeFailed, new(int64(300)), "s-1", "t-2")),
			fact(1, ended(usage.OutcomeTimeout, nil, "", "t-2")),
			fact(1, ended(usage.OutcomeCancelled, nil, "", "t-2")),
			fact(1, ended(usage.OutcomeSuccess, new(int64(0)), "", "")),
			fact(1, ended(usage.OutcomeSuccess, nil, "", "")),
			fact(1),
		)
		require.NoError(t, err)
		_, err = f.report("help", fact(1, ended(usage.OutcomeSuccess, new(int64(100)), "s-1", "t-1"), named("r-1")))
		require.NoError(t, err, "a replay adds no outcome")
		d, err := f.db.Agents(t.Context()).Detail("help", f.db.Now())
		require.NoError(t, err)
		require.Equal(t, models.AgentStats{SessionsToday: 4, AvgResponseTimeMS: new(int64(133)), SuccessRate: new(0.6)}, d.Stats)
		require.EqualValues(t, 7, d.TokensUsedToday)
	})

	onEachDatabase(t, "OfSettlementsCountEvenWithoutTokens", func(t *testing.T, f *fixture) {
		ended := usage.FactOutcome{Outcome: usage.OutcomeFailed, DurationMS: new(int64(50)), SessionID: "s"}
		for _, tokens := range []int64{0, 5} {
			held := f.hold(t, "help", 10)
			for range 2 {
				_, err := f.Settle(t.Context(), "help", held.ID, usage.Settlement{Tokens: &tokens, FactOutcome: ended}, nil)
				require.NoError(t, err)
			}
		}
		d, err := f.db.Agents(t.Context()).Detail("help", f.db.Now())
		require.NoError(t, err)
		require.Equal(t, models.AgentStats{SessionsToday: 1, AvgResponseTimeMS: new(int64(50)), SuccessRate: new(0.0)}, d.Stats)
		require.EqualValues(t, 5, d.TokensUsedToday)
	})
}
