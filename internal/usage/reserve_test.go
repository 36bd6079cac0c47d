package usage_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/orchestrator"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
)

// draw draws facts of tokens on a reservation, the first one with a request id.
func (f *fixture) draw(t *testing.T, reservation, requestID string, elsewhere int64, tokens ...int64) (left int64) {
	t.Helper()
	facts := make([]usage.FactDraft, len(tokens))
	for i := range tokens {
		facts[i].Tokens = &tokens[i]
	}
	if requestID != "" {
		facts[0].RequestID = &requestID
	}
	require.NoError(t, f.Write(t.Context(), func(tx *store.Tx) (err error) {
		left, err = f.DrawIn(tx, "help", reservation, facts, elsewhere)
		return err
	}))
	return left
}

func TestDraw(t *testing.T) {
	t.Parallel()
	lasting := func(t *testing.T, f *fixture, tokens int64) (r models.Reservation) {
		t.Helper()
		require.NoError(t, f.Write(t.Context(), func(tx *store.Tx) (err error) {
			r, err = f.ReserveIn(tx, "help", tokens, usage.Lasting)
			return err
		}))
		return r
	}
	balance := func(t *testing.T, f *fixture, used, reserved int64) {
		t.Helper()
		u := f.usage(t, "help")
		require.Equal(t, []int64{used, reserved}, []int64{u.UsedToday, u.Reserved})
	}
	onEachDatabase(t, "charges a part and keeps the rest", func(t *testing.T, f *fixture) {
		r := lasting(t, f, 4_000)
		require.EqualValues(t, 3_000, f.draw(t, r.ID, "", 0, 600, 400))
		balance(t, f, 1_000, 3_000)
		f.clock(t, "2026-03-11T00:00:00")
		require.EqualValues(t, 2_500, f.draw(t, r.ID, "", 500), "it lasts, and tokens of other agents are released")
		balance(t, f, 0, 2_500)
		require.NoError(t, f.Release(t.Context(), "help", r.ID))
		balance(t, f, 0, 0)
	})
	onEachDatabase(t, "counts a request id once", func(t *testing.T, f *fixture) {
		r := lasting(t, f, 4_000)
		require.EqualValues(t, 3_000, f.draw(t, r.ID, "call-1", 0, 1_000))
		require.EqualValues(t, 3_000, f.draw(t, r.ID, "call-1", 0, 1_000))
		require.Zero(t, f.draw(t, "", "call-1", 0, 1_000), "also without the reservation")
		balance(t, f, 1_000, 3_000)
	})
	onEachDatabase(t, "charges more than what is reserved", func(t *testing.T, f *fixture) {
		r := lasting(t, f, 1_000)
		require.Zero(t, f.draw(t, r.ID, "", 0, 1_500))
		balance(t, f, 1_500, 0)
		require.Zero(t, f.draw(t, r.ID, "", 0, 500), "the reservation has ended")
		balance(t, f, 2_000, 0)
	})
	onEachDatabase(t, "charges although others have released the reservation", func(t *testing.T, f *fixture) {
		r := lasting(t, f, 1_000)
		require.NoError(t, f.Release(t.Context(), "help", r.ID))
		require.Zero(t, f.draw(t, r.ID, "", 100, 200))
		balance(t, f, 200, 0)
	})
}

func TestReservations(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "HoldTokensFromTheMomentTheyAreGranted", func(t *testing.T, f *fixture) {
		r := f.hold(t, "help", 4_000)
		require.Equal(t, models.Reservation{
			ID: r.ID, AgentID: "help", Tokens: 4_000, State: models.ReservationHeld,
			CreatedAt: f.db.Now(), ExpiresAt: f.db.Now().Add(300 * time.Second), Path: "nova/orch/spec/help",
		}, r)
		kept, err := f.Reservation(t.Context(), "help", r.ID)
		require.NoError(t, err)
		require.Equal(t, r, kept)
		require.EqualValues(t, 4_000, f.usage(t, "help").Reserved)
		require.EqualValues(t, 6_000, f.left(t, "help"))
		f.record(t, "help", 5_000)
		f.refused(t, "help", 1_001)
		f.hold(t, "help", 1_000)
		f.refused(t, "help", 1)
	})

	onEachDatabase(t, "AreRefusedWithWhatIsLeft", func(t *testing.T, f *fixture) {
		f.record(t, "help", 3_000)
		f.hold(t, "help", 2_000)
		_, err := f.reserve("help", 5_001)
		requireCode(t, errs.BudgetExceeded, err)
		require.Equal(t, map[string]any{
			"agent_id": "help", "scope": models.ScopeOwn, "budget": int64(10_000), "used": int64(3_000), "reserved": int64(2_000),
			"remaining": int64(5_000), "requested": int64(5_001), "reset_at": time.Date(2026, 1, 11, 0, 0, 0, 0, time.UTC), "retry_after": 5,
		}, errs.From(err).Meta)
		require.EqualValues(t, 2_000, f.usage(t, "help").Reserved, "nothing is held")
	})

	onEachDatabase(t, "of more than a whole daily budget are refused permanently", func(t *testing.T, f *fixture) {
		permanent := func(agent string, tokens int64) *errs.Error {
			_, err := f.reserve(agent, tokens)
			requireCode(t, errs.BudgetExceeded, err)
			return errs.From(err)
		}
		f.record(t, "help", 9_000)
		require.False(t, permanent("help", 10_000).Permanent, "it fits into the budget of the next day")
		e := permanent("help", 10_001)
		require.True(t, e.Permanent)
		require.Contains(t, e.Detail, `larger than the whole daily budget of "help", 10000 tokens: reserve less or raise the budget`)
		f.change(t, "spec", func(a *models.Agent) {
			a.BudgetScope, a.TokenBudget = models.ScopeSubtree, new(int64(5_000))
		})
		e = permanent("help", 6_000)
		require.True(t, e.Permanent, "the budget above never covers it")
		require.Contains(t, e.Detail, `larger than the whole daily budget of "spec", 5000 tokens`)
	})

	onEachDatabase(t, "OfADeactivatedAgentAreRefused", func(t *testing.T, f *fixture) {
		held := f.hold(t, "help", 10)
		f.change(t, "help", func(a *models.Agent) { a.IsActive = false })
		_, err := f.reserve("help", 1)
		requireCode(t, errs.AgentDeactivated, err)
		_, err = f.settle("help", held.ID, 10)
		require.NoError(t, err, "a granted reservation can be settled")
		f.change(t, "help", func(a *models.Agent) { a.IsActive = true })
		f.hold(t, "help", 1)
	})

	onEachDatabase(t, "NeedAnAgentAndAName", func(t *testing.T, f *fixture) {
		held, other := f.hold(t, "help", 10), uuid.NewString()
		_, err := f.reserve("no-such-agent", 1)
		requireCode(t, errs.NotFound, err)
		for _, at := range [][2]string{{"no-such-agent", held.ID}, {"aid", held.ID}, {"help", other}, {"help", ""}} {
			_, err = f.settle(at[0], at[1], 1)
			requireCode(t, errs.NotFound, err)
			requireCode(t, errs.NotFound, f.release(at[0], at[1]))
			_, err = f.Reservation(t.Context(), at[0], at[1])
			requireCode(t, errs.NotFound, err)
		}
		require.EqualValues(t, 10, f.usage(t, "help").Reserved)
	})

	onEachDatabase(t, "LiveForTheTimeThatWasAskedFor", func(t *testing.T, f *fixture) {
		ask := func(tokens, ttl *int64) error {
			_, err := f.Reserve(t.Context(), "help", usage.ReservationDraft{Tokens: tokens, TTLSeconds: ttl}, nil)
			return err
		}
		requireFields(t, []string{"/tokens required"}, ask(nil, nil))
		requireFields(t, []string{"/tokens min"}, ask(new(int64(0)), nil))
		requireFields(t, []string{"/tokens max"}, ask(new(int64(orchestrator.MaxBudget+1)), nil))
		requireFields(t, []string{"/ttl_seconds min"}, ask(new(int64(1)), new(int64(0))))
		requireFields(t, []string{"/ttl_seconds max"}, ask(new(int64(1)), new(int64(usage.MaxReservationTTL+1))))
		require.NoError(t, ask(new(int64(1)), new(int64(1))))
		require.NoError(t, ask(new(int64(10)), new(int64(usage.MaxReservationTTL))))
		f.db.Clock.Advance(time.Second - time.Microsecond)
		require.EqualValues(t, 11, f.usage(t, "help").Reserved)
		f.db.Clock.Advance(time.Microsecond)
		require.EqualValues(t, 10, f.usage(t, "help").Reserved)
		f.db.Clock.Advance(usage.MaxReservationTTL*time.Second - time.Second - time.Microsecond)
		require.EqualValues(t, 10, f.usage(t, "help").Reserved)
		f.db.Clock.Advance(time.Microsecond)
		require.Zero(t, f.usage(t, "help").Reserved)
	})

	onEachDatabase(t, "AreListedByTheStateTheyAreIn", func(t *testing.T, f *fixture) {
		settled, released, expired := f.hold(t, "help", 1), f.hold(t, "help", 2), f.hold(t, "help", 3)
		_, err := f.settle("help", settled.ID, 1)
		require.NoError(t, err)
		require.NoError(t, f.release("help", released.ID))
		f.db.Clock.Advance(300 * time.Second)
		held := f.hold(t, "help", 4) // frees what expired
		f.db.Clock.Advance(299 * time.Second)
		last := f.hold(t, "help", 5)
		f.db.Clock.Advance(time.Second) // held is overdue and not released yet
		for state, want := range map[models.ReservationState][]string{
			"":                         {last.ID, held.ID, expired.ID, released.ID, settled.ID},
			models.ReservationHeld:     {last.ID},
			models.ReservationExpired:  {held.ID, expired.ID},
			models.ReservationReleased: {released.ID},
			models.ReservationSettled:  {settled.ID},
		} {
			list, err := f.Ledger.Reservations(t.Context(), "help", state, "", 10)
			require.NoError(t, err)
			var ids []string
			for _, r := range list {
				ids = append(ids, r.ID)
				if state != "" {
					require.Equal(t, state, r.State)
				}
			}
			require.Equal(t, want, ids, "%q", state)
		}
		page, err := f.Ledger.Reservations(t.Context(), "help", "", expired.ID, 1)
		require.NoError(t, err)
		require.Equal(t, released.ID, page[0].ID)
		require.Len(t, page, 1)
		_, err = f.Ledger.Reservations(t.Context(), "no-such-agent", "", "", 10)
		requireCode(t, errs.NotFound, err)
	})
}

func TestSettlements(t *testing.T) {
	t.Parallel()

	for _, used := range []int64{0, 400, 1_000, 1_500} {
		onEachDatabase(t, fmt.Sprintf("Of1000With%dCountWhatWasUsed", used), func(t *testing.T, f *fixture) {
			r := f.hold(t, "help", 1_000)
			s, err := f.settle("help", r.ID, used)
			require.NoError(t, err)
			r.State, r.SettledTokens, r.EndedAt = models.ReservationSettled, &used, new(f.db.Now())
			s.Reservation.Digest = r.Digest
			require.Equal(t, r, s.Reservation)
			require.False(t, s.Late || s.Replayed)
			require.Equal(t, used, s.Balance.UsedToday)
			require.Equal(t, 10_000-used, *s.Balance.Remaining)
			u := f.usage(t, "help")
			require.Equal(t, used, u.UsedToday)
			require.Zero(t, u.Reserved)
			require.Equal(t, used, f.subtree(t, "nova"))
			kept, err := f.Reservation(t.Context(), "help", r.ID)
			require.NoError(t, err)
			require.Equal(t, used, *kept.SettledTokens)
			require.Equal(t, models.ReservationSettled, kept.State)
		})
	}

	onEachDatabase(t, "AreMadeOnce", func(t *testing.T, f *fixture) {
		r := f.hold(t, "help", 1_000)
		labels := models.FactLabels{Model: "gpt"}
		first, err := f.Settle(t.Context(), "help", r.ID, usage.Settlement{Tokens: new(int64(700)), FactLabels: labels}, nil)
		require.NoError(t, err)
		again, err := f.Settle(t.Context(), "help", r.ID, usage.Settlement{Tokens: new(int64(700)), FactLabels: labels}, nil)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		require.Equal(t, first.Balance, again.Balance)
		for _, other := range []usage.Settlement{
			{Tokens: new(int64(701)), FactLabels: labels},
			{Tokens: new(int64(700))},
			{Tokens: new(int64(700)), FactLabels: labels, FactOutcome: usage.FactOutcome{Outcome: usage.OutcomeSuccess}},
		} {
			_, err = f.Settle(t.Context(), "help", r.ID, other, nil)
			requireCode(t, errs.ReservationEnded, err)
			require.Equal(t, models.ReservationSettled, errs.From(err).Meta["state"])
		}
		requireCode(t, errs.ReservationEnded, f.release("help", r.ID))
		require.EqualValues(t, 700, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "OfWhatWasReleasedAreRefused", func(t *testing.T, f *fixture) {
		r := f.hold(t, "help", 1_000)
		require.NoError(t, f.release("help", r.ID))
		require.NoError(t, f.release("help", r.ID), "it is released already")
		_, err := f.settle("help", r.ID, 1)
		requireCode(t, errs.ReservationEnded, err)
		require.Equal(t, models.ReservationReleased, errs.From(err).Meta["state"])
		require.Zero(t, f.usage(t, "help").UsedToday)
		require.EqualValues(t, 10_000, f.left(t, "help"))
	})

	onEachDatabase(t, "AreLateFromTheMicrosecondOfTheExpiry", func(t *testing.T, f *fixture) {
		early, late := f.hold(t, "help", 1_000), f.hold(t, "help", 2_000)
		f.db.Clock.Advance(300*time.Second - time.Microsecond)
		s, err := f.settle("help", early.ID, 10)
		require.NoError(t, err)
		require.False(t, s.Late)
		require.EqualValues(t, 2_000, s.Balance.Reserved)
		f.db.Clock.Advance(time.Microsecond)
		shown, err := f.Reservation(t.Context(), "help", late.ID)
		require.NoError(t, err)
		require.Equal(t, models.ReservationExpired, shown.State)
		require.NoError(t, f.release("help", late.ID), "it holds no tokens any more")
		s, err = f.settle("help", late.ID, 20)
		require.NoError(t, err)
		require.True(t, s.Late)
		require.Zero(t, s.Balance.Reserved)
		require.EqualValues(t, 30, s.Balance.UsedToday)
		again, err := f.settle("help", late.ID, 20)
		require.NoError(t, err)
		require.True(t, again.Replayed)
		_, err = f.settle("help", late.ID, 21)
		requireCode(t, errs.ReservationEnded, err)
		requireCode(t, errs.ReservationEnded, f.release("help", late.ID))
	})
}

func TestExpiredReservations(t *testing.T) {
	t.Parallel()

	// More reservations are overdue than one transaction releases, and the request needs the tokens
	// of the last one.
	onEachDatabase(t, "DoNotBlockOthersHoweverManyThereAre", func(t *testing.T, f *fixture) {
		for range 300 {
			f.hold(t, "help", 1)
		}
		f.db.Clock.Advance(time.Second)
		f.hold(t, "aid", 10_000)
		f.db.Clock.Advance(300 * time.Second)
		require.EqualValues(t, 10_000, f.left(t, "aid"))
		f.hold(t, "aid", 10_000)
		require.Zero(t, f.usage(t, "help").Reserved)
	})

	// The ancestor has no account when a reservation below it expires: it never spent, and began to
	// count its subtree later.
	onEachDatabase(t, "AreFreedUnderAnAncestorWithoutAnAccount", func(t *testing.T, f *fixture) {
		f.hold(t, "help", 10)
		f.scope(t, "spec", models.ScopeSubtree)
		f.db.Clock.Advance(time.Hour)
		f.record(t, "rival", 1)
		require.EqualValues(t, 25_000, f.leftBelow(t, "spec"))
		f.hold(t, "aid", 10_000)
		require.EqualValues(t, 15_000, f.leftBelow(t, "spec"))
	})

	// The running ledger releases them without any operation.
	onEachDatabase(t, "AreFreedByTheRunningLedger", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		for range 300 {
			f.hold(t, "help", 1)
		}
		last := f.hold(t, "help", 7)
		f.db.Clock.Advance(300 * time.Second)
		require.EqualValues(t, 301, f.held(t))
		require.NoError(t, f.Start(t.Context()))
		require.NoError(t, f.Start(t.Context()))
		require.Eventually(t, func() bool { return f.held(t) == 0 }, time.Minute, 5*time.Millisecond)
		require.NoError(t, f.Stop(t.Context()))
		require.NoError(t, f.Stop(t.Context()))
		s, err := f.settle("help", last.ID, 7)
		require.NoError(t, err)
		require.True(t, s.Late)
	})
}

// held counts the open reservations.
func (f *fixture) held(t *testing.T) int64 {
	t.Helper()
	v, err := f.Verify(t.Context())
	require.NoError(t, err)
	return v.Reservations
}
