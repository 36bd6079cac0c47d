package usage_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
)

// counted returns the ledger's counters as collected by Prometheus, by their name without the
// prefix comet_ledger_ and their label.
func (f *fixture) counted(t *testing.T) map[string]int {
	t.Helper()
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(f.Ledger))
	families, err := reg.Gather()
	require.NoError(t, err)
	out := map[string]int{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()[len("comet_ledger_"):]
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = int(m.GetCounter().GetValue())
		}
	}
	return out
}

func TestTheLedgersCounters(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "CountWhatWasCommittedAndARepetitionNever", func(t *testing.T, f *fixture) {
		named := fact(100, func(d *usage.FactDraft) { d.RequestID = new("r-1") })
		for range 3 {
			_, err := f.report("help", named, fact(20))
			require.NoError(t, err)
		}
		require.Equal(t, map[string]int{
			"facts_total": 1 + 3, "tokens_total": 100 + 3*20, "settlements_total": 0, "reservations_total granted": 0, "reservations_total refused": 0,
		}, f.counted(t))

		_, err := f.report("help", named, fact(0)) // none of them
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		_, err = f.report("no-such-agent", fact(7))
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		require.Equal(t, 160, f.counted(t)["tokens_total"])

		reserve := func(tokens int64) (models.Reservation, error) {
			return f.Reserve(t.Context(), "help", usage.ReservationDraft{Tokens: &tokens}, nil)
		}
		first, err := reserve(1000)
		require.NoError(t, err)
		second, err := reserve(500)
		require.NoError(t, err)
		_, err = reserve(9000)
		require.Equal(t, errs.BudgetExceeded, errs.CodeOf(err))
		for range 2 { // the second time it is replayed
			_, err = f.Settle(t.Context(), "help", first.ID, usage.Settlement{Tokens: new(int64(700))}, nil)
			require.NoError(t, err)
		}
		_, err = f.Settle(t.Context(), "help", second.ID, usage.Settlement{Tokens: new(int64(0))}, nil)
		require.NoError(t, err)
		require.Equal(t, map[string]int{
			"facts_total": 4 + 1, "tokens_total": 160 + 700, "settlements_total": 2, "reservations_total granted": 2, "reservations_total refused": 1,
		}, f.counted(t), "a settlement with 0 tokens is not a fact")
	})
}
