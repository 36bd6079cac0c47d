package usage_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// prepaid returns prepaid accounts of a process.
func (f *fixture) prepaid(opts usage.PrepaidOptions) *usage.Prepaid {
	opts.Clock = f.db.Now
	return usage.NewPrepaid(f.Ledger, &opts)
}

func TestPrepaid(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "charges what was used, with the kind of the work", func(t *testing.T, f *fixture) {
		p := f.prepaid(usage.PrepaidOptions{Kind: "work"})
		h, err := p.Hold(t.Context(), "help", 100)
		require.NoError(t, err)
		require.EqualValues(t, 1000, f.usage(t, "help").Reserved, "reserved in advance")
		h.Charge(70)
		require.NoError(t, p.Settle(t.Context(), nil))
		require.EqualValues(t, 70, f.usage(t, "help").UsedToday)
		require.EqualValues(t, 1000, f.usage(t, "help").Reserved, "renewed")

		at := f.db.Now()
		history, err := f.History(t.Context(), "help", usage.HistoryQuery{Window: usage.WindowDay, By: usage.ByKind, From: at.Truncate(24 * time.Hour), To: at, Top: 10})
		require.NoError(t, err)
		require.Equal(t, []usage.HistoryGroup{{Value: "work", Tokens: 70, Facts: 1}}, history[0].Breakdown)

		require.NoError(t, p.Close(t.Context(), nil))
		require.Zero(t, f.usage(t, "help").Reserved)
	})

	onEachDatabase(t, "a hold is refused permanently only if it alone is larger than the whole budget", func(t *testing.T, f *fixture) {
		p := f.prepaid(usage.PrepaidOptions{})
		held, err := p.Hold(t.Context(), "help", 9_000)
		require.NoError(t, err)
		for tokens, permanent := range map[int64]bool{1_001: false, 10_000: false, 10_001: true} {
			_, err = p.Hold(t.Context(), "help", tokens)
			requireCode(t, errs.BudgetExceeded, err)
			require.Equal(t, permanent, errs.From(err).Permanent, tokens)
		}
		held.Charge(0)
		require.NoError(t, p.Close(t.Context(), nil))
	})

	onEachDatabase(t, "writes rows of the caller in the transaction of the charge", func(t *testing.T, f *fixture) {
		p := f.prepaid(usage.PrepaidOptions{})
		h, err := p.Hold(t.Context(), "help", 100)
		require.NoError(t, err)
		h.Charge(70)
		broken := errors.New("broken")
		require.ErrorIs(t, p.Settle(t.Context(), func(*store.Tx) error { return broken }), broken)
		require.Zero(t, f.usage(t, "help").UsedToday)
		require.NoError(t, p.Settle(t.Context(), func(tx *store.Tx) error { return tx.Events().Emit(events.AgentUpdated, "help", nil) }))
		require.EqualValues(t, 70, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "releases the reservation of an agent that does nothing for five seconds", func(t *testing.T, f *fixture) {
		p := f.prepaid(usage.PrepaidOptions{})
		h, err := p.Hold(t.Context(), "help", 100)
		require.NoError(t, err)
		f.db.Clock.Advance(5 * time.Second)
		require.NoError(t, p.Settle(t.Context(), nil))
		require.EqualValues(t, 1000, f.usage(t, "help").Reserved, "work is in progress")
		h.Charge(100)
		require.NoError(t, p.Settle(t.Context(), nil))
		require.Zero(t, f.usage(t, "help").Reserved)
		require.EqualValues(t, 100, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "renews the reservation of long work", func(t *testing.T, f *fixture) {
		p := f.prepaid(usage.PrepaidOptions{})
		h, err := p.Hold(t.Context(), "help", 600)
		require.NoError(t, err)
		for range 10 {
			f.db.Clock.Advance(time.Minute + time.Second)
			require.NoError(t, p.Settle(t.Context(), nil))
		}
		require.GreaterOrEqual(t, f.usage(t, "help").Reserved, int64(600))
		h.Charge(600)
		require.NoError(t, p.Close(t.Context(), nil))
	})

	onEachDatabase(t, "repeats a settlement without a response unchanged", func(t *testing.T, f *fixture) {
		p := f.prepaid(usage.PrepaidOptions{})
		charge := func(tokens int64) {
			h, err := p.Hold(t.Context(), "help", tokens)
			require.NoError(t, err)
			h.Charge(tokens)
		}
		charge(100)
		require.NoError(t, p.SettleUnconfirmed(t.Context()))
		charge(50)
		require.NoError(t, p.Settle(t.Context(), nil))
		require.EqualValues(t, 100, f.usage(t, "help").UsedToday, "the first statement counts once")
		require.NoError(t, p.Settle(t.Context(), nil))
		require.EqualValues(t, 150, f.usage(t, "help").UsedToday)
		require.NoError(t, p.Close(t.Context(), nil))
		require.EqualValues(t, 150, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "charges although another request has ended the reservation", func(t *testing.T, f *fixture) {
		p := f.prepaid(usage.PrepaidOptions{})
		h, err := p.Hold(t.Context(), "help", 100)
		require.NoError(t, err)
		held, err := f.Reservations(t.Context(), "help", models.ReservationHeld, "", 10)
		require.NoError(t, err)
		require.Len(t, held, 1)
		require.NoError(t, f.release("help", held[0].ID))
		h.Charge(100)
		require.NoError(t, p.Close(t.Context(), nil))
		require.EqualValues(t, 100, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "an unknown agent is refused", func(t *testing.T, f *fixture) {
		_, err := f.prepaid(usage.PrepaidOptions{}).Hold(t.Context(), "missing", 1)
		requireCode(t, errs.NotFound, err)
	})

	onEachDatabase(t, "a deactivated agent is refused and charged", func(t *testing.T, f *fixture) {
		p := f.prepaid(usage.PrepaidOptions{})
		h, err := p.Hold(t.Context(), "help", 100)
		require.NoError(t, err)
		f.change(t, "help", func(a *models.Agent) { a.IsActive = false })
		h.Charge(100)
		_, err = p.Hold(t.Context(), "help", 2000)
		requireCode(t, errs.AgentDeactivated, err)
		require.NoError(t, p.Close(t.Context(), nil))
		require.EqualValues(t, 100, f.usage(t, "help").UsedToday)
	})
}

func TestPrepaidBudgets(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "an advance is at most half of what remains and never refused", func(t *testing.T, f *fixture) {
		f.record(t, "help", 9000)
		p := f.prepaid(usage.PrepaidOptions{})
		h, err := p.Hold(t.Context(), "help", 100)
		require.NoError(t, err)
		require.EqualValues(t, 500, f.usage(t, "help").Reserved)
		h.Charge(100)
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "spec", 15_700) // the subtree has 200 tokens left
		require.NoError(t, p.Settle(t.Context(), nil))
		require.EqualValues(t, 100, f.usage(t, "help").Reserved)
		require.Equal(t, []string{"agent.budget_warning help own", "agent.budget_warning spec subtree"}, f.alerts(t))
	})

	onEachDatabase(t, "work in progress stays reserved after a refusal", func(t *testing.T, f *fixture) {
		f.record(t, "help", 9000)
		one, other := f.prepaid(usage.PrepaidOptions{}), f.prepaid(usage.PrepaidOptions{})
		h, err := one.Hold(t.Context(), "help", 100)
		require.NoError(t, err)
		h.Estimate(450)
		_, err = one.Hold(t.Context(), "help", 600)
		requireCode(t, errs.BudgetExceeded, err)
		require.EqualValues(t, 450, f.usage(t, "help").Reserved, "the estimate")

		_, err = other.Hold(t.Context(), "help", 551)
		requireCode(t, errs.BudgetExceeded, err)
		_, err = other.Hold(t.Context(), "help", 550)
		require.NoError(t, err, "the rest is available")
		require.EqualValues(t, 1000, f.usage(t, "help").Reserved)
		h.Charge(500) // more than it held
		require.NoError(t, one.Close(t.Context(), nil))
		require.EqualValues(t, 9500, f.usage(t, "help").UsedToday)
		require.EqualValues(t, 550, f.usage(t, "help").Reserved)
	})

	onEachDatabase(t, "a refusal that depends on estimates is decided after they are counted", func(t *testing.T, f *fixture) {
		f.record(t, "help", 7000)
		var h *usage.Hold
		counted := 0
		p := f.prepaid(usage.PrepaidOptions{Count: func(context.Context) error {
			counted++
			h.Charge(10)
			return nil
		}})
		h, err := p.Hold(t.Context(), "help", 100)
		require.NoError(t, err)
		h.Estimate(2000)
		_, err = p.Hold(t.Context(), "help", 2500)
		require.NoError(t, err)
		require.Equal(t, 1, counted)
		require.Empty(t, f.alerts(t), "no refusal is published")
		require.EqualValues(t, 7010, f.usage(t, "help").UsedToday)

		_, err = p.Hold(t.Context(), "help", 2500)
		requireCode(t, errs.BudgetExceeded, err)
		require.Equal(t, 1, counted, "nothing is estimated")
		require.Equal(t, []string{"agent.budget_exceeded help own"}, f.alerts(t))
	})

	onEachDatabase(t, "concurrent callers of two processes use no more than the budget", func(t *testing.T, f *fixture) {
		const tokens = 30
		processes := []*usage.Prepaid{f.prepaid(usage.PrepaidOptions{}), f.prepaid(usage.PrepaidOptions{})}
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				p := processes[n%2]
				for range 100 {
					h, err := p.Hold(t.Context(), "help", tokens)
					if err != nil {
						return
					}
					h.Charge(tokens)
					if err := p.Settle(t.Context(), nil); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for _, p := range processes {
			require.NoError(t, p.Close(t.Context(), nil))
		}
		u := f.usage(t, "help")
		require.LessOrEqual(t, u.UsedToday, int64(10_000))
		require.Greater(t, u.UsedToday, int64(9000), "and use nearly all of it")
		require.Zero(t, u.Reserved)
	})
}

// TestPrepaidModel compares the ledger with a model after random operations: what was charged is
// recorded once.
func TestPrepaidModel(t *testing.T) {
	t.Parallel()
	onEachDatabase(t, "the ledger records what was charged", func(t *testing.T, f *fixture) {
		f.change(t, "spec", func(a *models.Agent) { a.TokenBudget = new(int64(1_000_000)) })
		for seed := range uint64(10) {
			r := rand.New(rand.NewPCG(seed, 1))
			before := f.usage(t, "spec").UsedToday
			p := f.prepaid(usage.PrepaidOptions{})
			var open []*usage.Hold
			var used int64
			for range 60 {
				switch n := r.Int64N(400); r.IntN(6) {
				case 0, 1:
					h, err := p.Hold(t.Context(), "spec", n)
					require.NoError(t, err)
					open = append(open, h)
				case 2:
					if len(open) > 0 {
						open[r.IntN(len(open))].Estimate(n)
					}
				case 3, 4:
					if len(open) > 0 {
						open[0].Charge(n)
						open, used = open[1:], used+n
					}
				case 5:
					settle := p.Settle
					if r.IntN(2) == 0 {
						settle = func(ctx context.Context, _ func(*store.Tx) error) error { return p.SettleUnconfirmed(ctx) }
					}
					require.NoError(t, settle(t.Context(), nil))
				}
			}
			for _, h := range open {
				h.Charge(1)
				used++
			}
			for range 2 { // the first one may repeat an unconfirmed statement
				require.NoError(t, p.Close(t.Context(), nil))
			}
			require.Equal(t, before+used, f.usage(t, "spec").UsedToday, "seed %d", seed)
			f.db.Clock.Advance(2 * time.Minute) // reservations of unconfirmed statements expire
			require.Zero(t, f.usage(t, "spec").Reserved)
		}
	})
}

// TestHoldTimesOut checks that a call fails when its account is empty and the ledger does not
// respond.
func TestHoldTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, start := usage.NewPrepaid(nil, nil), time.Now()
		p.Block("help")
		_, err := p.Hold(t.Context(), "help", 1)
		requireCode(t, errs.Unavailable, err)
		require.Equal(t, usage.HoldTimeout, time.Since(start))
	})
}
