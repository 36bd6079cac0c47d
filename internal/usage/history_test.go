package usage_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
)

// labelled sets the model, the kind and the task of a draft.
func labelled(model, kind, task string) func(*usage.FactDraft) {
	return func(d *usage.FactDraft) { d.FactLabels = models.FactLabels{Model: model, Kind: kind, TaskID: task} }
}

func TestHistory(t *testing.T) {
	t.Parallel()
	at := func(hour, minute int) time.Time { return time.Date(2026, 1, 10, hour, minute, 0, 0, time.UTC) }
	bucket := func(hour int, tokens int64) usage.HistoryBucket {
		return usage.HistoryBucket{Start: at(hour, 0), Tokens: tokens}
	}

	onEachDatabase(t, "HasEveryWindowInOrderAlsoThoseWithoutUse", func(t *testing.T, f *fixture) {
		f.clock(t, "09:59:59.999999")
		f.record(t, "spec", 1)
		f.clock(t, "10:00:00")
		f.record(t, "spec", 20)
		f.record(t, "spec", 3)
		f.record(t, "help", 1_000)
		f.clock(t, "12:59:59.999999")
		f.record(t, "spec", 400)
		got, err := f.History(t.Context(), "spec", usage.HistoryQuery{Window: usage.WindowHour, From: at(9, 0), To: at(14, 0)})
		require.NoError(t, err)
		require.Equal(t, []usage.HistoryBucket{bucket(9, 1), bucket(10, 23), bucket(11, 0), bucket(12, 400), bucket(13, 0)}, got)
		require.Equal(t, []int64{0, 424, 0}, f.days(t, "spec", "2026-01-09", 3))
	})

	onEachDatabase(t, "HasTheWindowsThatBeginWithinItsBounds", func(t *testing.T, f *fixture) {
		for _, hour := range []string{"09", "10", "11"} {
			f.clock(t, hour+":30:00")
			f.record(t, "spec", 5)
		}
		for _, c := range []struct {
			from, to time.Time
			first, n int
		}{
			{at(9, 0), at(11, 0), 9, 2},
			{at(9, 1), at(11, 0), 10, 1},
			{at(9, 0), at(11, 1), 9, 3},
			{at(8, 59), at(9, 1), 9, 1},
			{at(9, 0).Add(-time.Microsecond), at(10, 0).Add(time.Microsecond), 9, 2},
			{at(9, 1), at(9, 59), 0, 0},
			{at(10, 0), at(10, 0), 0, 0},
			{at(11, 0), at(9, 0), 0, 0},
		} {
			got, err := f.History(t.Context(), "spec", usage.HistoryQuery{Window: usage.WindowHour, From: c.from, To: c.to})
			require.NoError(t, err)
			want := []usage.HistoryBucket{}
			for hour := c.first; hour < c.first+c.n; hour++ {
				want = append(want, bucket(hour, 5))
			}
			require.Equal(t, want, got, "%s to %s", c.from, c.to)
			by, err := f.History(t.Context(), "spec", usage.HistoryQuery{Window: usage.WindowHour, By: usage.ByKind, Top: 1, From: c.from, To: c.to})
			require.NoError(t, err)
			require.Len(t, by, c.n)
			for _, b := range by {
				require.EqualValues(t, 5, b.Tokens)
			}
		}
		elsewhere := time.FixedZone("UTC+5:30", 19_800)
		got, err := f.History(t.Context(), "spec", usage.HistoryQuery{Window: usage.WindowDay, From: at(0, 0).In(elsewhere), To: at(23, 0).In(elsewhere)})
		require.NoError(t, err)
		require.Equal(t, []usage.HistoryBucket{bucket(0, 15)}, got, "days are in UTC")
	})

	onEachDatabase(t, "IsBrokenDownByItsLabels", func(t *testing.T, f *fixture) {
		_, err := f.report("spec",
			fact(5, labelled("big", "chat", "t-1")), fact(7, labelled("small", "chat", "t-1")), fact(6, labelled("big", "code", "t-2")),
			fact(2, labelled("tiny", "", "")), fact(3), fact(1))
		require.NoError(t, err)
		_, err = f.report("help", fact(9, labelled("big", "chat", "t-1")))
		require.NoError(t, err)
		f.clock(t, "16:00:00")
		_, err = f.report("spec", fact(8, labelled("small", "code", "t-1")))
		require.NoError(t, err)
		query := usage.HistoryQuery{Window: usage.WindowHour, By: usage.ByModel, From: at(15, 0), To: at(18, 0), Top: 2}
		got, err := f.History(t.Context(), "spec", query)
		require.NoError(t, err)
		require.Equal(t, []usage.HistoryBucket{
			{Start: at(15, 0), Tokens: 24, Breakdown: []usage.HistoryGroup{{Value: "big", Tokens: 11, Facts: 2}, {Value: "small", Tokens: 7, Facts: 1}}, OtherTokens: 6},
			{Start: at(16, 0), Tokens: 8, Breakdown: []usage.HistoryGroup{{Value: "small", Tokens: 8, Facts: 1}}},
			{Start: at(17, 0)},
		}, got)
		query.Window, query.By, query.From, query.To, query.Top = usage.WindowDay, usage.ByKind, at(0, 0), at(24, 0), 10
		got, err = f.History(t.Context(), "spec", query)
		require.NoError(t, err)
		require.Equal(t, []usage.HistoryBucket{{Start: at(0, 0), Tokens: 32, Breakdown: []usage.HistoryGroup{
			{Value: "code", Tokens: 14, Facts: 2}, {Value: "chat", Tokens: 12, Facts: 2}, {Value: "", Tokens: 6, Facts: 3},
		}}}, got)
		query.By = usage.ByTask
		got, err = f.History(t.Context(), "spec", query)
		require.NoError(t, err)
		require.Equal(t, []usage.HistoryGroup{
			{Value: "t-1", Tokens: 20, Facts: 3}, {Value: "", Tokens: 6, Facts: 3}, {Value: "t-2", Tokens: 6, Facts: 1},
		}, got[0].Breakdown)
	})

	onEachDatabase(t, "HasAtMost1000Windows", func(t *testing.T, f *fixture) {
		f.record(t, "spec", 5)
		query := usage.HistoryQuery{Window: usage.WindowHour, From: at(15, 0).Add(-999 * time.Hour), To: at(16, 0)}
		got, err := f.History(t.Context(), "spec", query)
		require.NoError(t, err)
		require.Len(t, got, 1000)
		require.Equal(t, bucket(15, 5), got[999])
		query.To = query.To.Add(time.Microsecond)
		_, err = f.History(t.Context(), "spec", query)
		requireCode(t, errs.InvalidParameter, err)
		query = usage.HistoryQuery{Window: usage.WindowDay, From: time.Time{}, To: at(0, 0).AddDate(8000, 0, 0)}
		_, err = f.History(t.Context(), "spec", query)
		requireCode(t, errs.InvalidParameter, err)
		_, err = f.History(t.Context(), "spec", usage.HistoryQuery{Window: usage.WindowDay, By: "mood", From: at(0, 0), To: at(24, 0)})
		requireCode(t, errs.InvalidParameter, err)
		_, err = f.History(t.Context(), "no-such-agent", query)
		requireCode(t, errs.NotFound, err)
	})

	onEachDatabase(t, "CountsSettlementsWithTheirLabels", func(t *testing.T, f *fixture) {
		r := f.hold(t, "spec", 10)
		_, err := f.Settle(t.Context(), "spec", r.ID,
			usage.Settlement{Tokens: new(int64(7)), FactLabels: models.FactLabels{Model: "big"}}, nil)
		require.NoError(t, err)
		got, err := f.History(t.Context(), "spec", usage.HistoryQuery{Window: usage.WindowHour, By: usage.ByModel, From: at(15, 0), To: at(16, 0), Top: 1})
		require.NoError(t, err)
		require.Equal(t, []usage.HistoryGroup{{Value: "big", Tokens: 7, Facts: 1}}, got[0].Breakdown)
	})
}
