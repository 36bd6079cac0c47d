package usage_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
)

// keyed returns an Idempotency-Key whose stored response is the result of the operation.
func keyed(key string) *models.Idempotency {
	return &models.Idempotency{
		Principal: "token-1", Key: key, RequestHash: [32]byte{byte(len(key))},
		Render: func(result any) (models.StoredResponse, error) {
			body, err := json.Marshal(result)
			return models.StoredResponse{Status: 201, Body: body}, err
		},
	}
}

// answer reads a stored response.
func answer[T any](t *testing.T, once *models.Idempotency) T {
	t.Helper()
	require.NotNil(t, once.Replay, "the request was answered before")
	var v T
	require.NoError(t, json.Unmarshal(once.Replay.Body, &v))
	return v
}

func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()

	onEachDatabase(t, "LetAReservationBeGrantedOnce", func(t *testing.T, f *fixture) {
		ask := func(once *models.Idempotency) (models.Reservation, error) {
			return f.Reserve(t.Context(), "help", usage.ReservationDraft{Tokens: new(int64(6_000))}, once)
		}
		once := keyed("k")
		r, err := ask(once)
		require.NoError(t, err)
		require.Nil(t, once.Replay)
		f.db.Clock.Advance(time.Hour)
		again := keyed("k")
		got, err := ask(again)
		require.NoError(t, err)
		require.Zero(t, got)
		require.Equal(t, r.ID, answer[models.Reservation](t, again).ID)
		require.Zero(t, f.usage(t, "help").Reserved, "it has expired since, and nothing else was granted")
		other := keyed("k")
		other.RequestHash[5] = 1
		_, err = ask(other)
		requireCode(t, errs.IdempotencyKeyReused, err)
	})

	onEachDatabase(t, "LetFactsBeRecordedOnce", func(t *testing.T, f *fixture) {
		for i := range 3 {
			once := keyed("k")
			out, err := f.Record(t.Context(), "help", []usage.FactDraft{fact(5), fact(6)}, once)
			require.NoError(t, err)
			if i == 0 {
				require.EqualValues(t, 11, out.Balance.UsedToday)
			} else {
				require.EqualValues(t, 11, answer[usage.Recorded](t, once).Balance.UsedToday)
			}
		}
		require.EqualValues(t, 11, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "LetAReservationBeSettledOnce", func(t *testing.T, f *fixture) {
		r := f.hold(t, "help", 10)
		for range 2 {
			_, err := f.Settle(t.Context(), "help", r.ID, usage.Settlement{Tokens: new(int64(7))}, keyed("k"))
			require.NoError(t, err)
		}
		require.EqualValues(t, 7, f.usage(t, "help").UsedToday)
	})

	onEachDatabase(t, "LetAnOperatorActOnce", func(t *testing.T, f *fixture) {
		d := usage.BudgetAdditionDraft{Tokens: new(int64(500)), ExpiresAt: new(f.db.Now().Add(time.Hour)), Reason: new("why")}
		var added models.BudgetAddition
		for i := range 2 {
			once := keyed("add")
			a, err := f.AddBudget(t.Context(), models.System(), "help", d, once)
			require.NoError(t, err)
			if i == 0 {
				added = a
			} else {
				require.Equal(t, added.ID, answer[models.BudgetAddition](t, once).ID)
			}
		}
		require.EqualValues(t, 10_500, f.left(t, "help"))
		f.record(t, "help", 100)
		_, err := f.Reset(t.Context(), models.System(), "help", usage.ResetDraft{Reason: new("why")}, keyed("reset"))
		require.NoError(t, err)
		f.record(t, "help", 100)
		_, err = f.Reset(t.Context(), models.System(), "help", usage.ResetDraft{Reason: new("why")}, keyed("reset"))
		require.NoError(t, err)
		require.EqualValues(t, 100, f.usage(t, "help").UsedToday)
		require.Len(t, f.trail(t, "help"), 2)
	})

	// A refusal stores no response, but its event.
	onEachDatabase(t, "KeepTheEventOfARefusal", func(t *testing.T, f *fixture) {
		f.record(t, "help", 9_000)
		ask := func() error {
			_, err := f.Reserve(t.Context(), "help", usage.ReservationDraft{Tokens: new(int64(1_001))}, keyed("k"))
			return err
		}
		requireCode(t, errs.BudgetExceeded, ask())
		requireCode(t, errs.BudgetExceeded, ask())
		require.Equal(t, []string{"agent.budget_warning help own", "agent.budget_exceeded help own"}, f.alerts(t))
		require.EqualValues(t, 1_001, allAlerts(t, f.db)[1].Requested)
		require.Zero(t, f.usage(t, "help").Reserved)
		f.reset(t, "help")
		require.NoError(t, ask(), "a refused request may be sent again with its key")
		require.EqualValues(t, 1_001, f.usage(t, "help").Reserved)
	})

	onEachDatabase(t, "KeepTheEventOfARefusalByAnAncestor", func(t *testing.T, f *fixture) {
		f.scope(t, "spec", models.ScopeSubtree)
		f.record(t, "aid", 25_000)
		_, err := f.Reserve(t.Context(), "help", usage.ReservationDraft{Tokens: new(int64(1))}, keyed("k"))
		require.Equal(t, "spec", errs.From(err).Meta["agent_id"])
		require.Equal(t, "agent.budget_exceeded spec subtree", f.alerts(t)[3])
		require.Len(t, f.alerts(t), 4)
	})

	// The refusing account is moved to the later day of a roll-up above it.
	onEachDatabase(t, "KeepTheEventOfARefusalOnADayAhead", func(t *testing.T, f *fixture) {
		f.record(t, "help", 20)
		_, err := f.Reserve(t.Context(), "help", usage.ReservationDraft{Tokens: new(int64(1)), TTLSeconds: new(int64(86_400))}, nil)
		require.NoError(t, err)
		f.scope(t, "orch", models.ScopeSubtree)
		f.clock(t, "2026-01-11T00:00:01")
		f.record(t, "other", 1)
		f.clock(t, "23:00:00")
		_, err = f.Reserve(t.Context(), "help", usage.ReservationDraft{Tokens: new(int64(10_000))}, keyed("k"))
		requireCode(t, errs.BudgetExceeded, err)
		got := allAlerts(t, f.db)
		require.Len(t, got, 1)
		require.Equal(t, "help 2026-01-11", got[0].AgentID+" "+got[0].Day)
		f.refused(t, "help", 10_001)
		require.Len(t, f.alerts(t), 1)
	})

	onEachDatabase(t, "OfARequestThatFailedMayBeUsedAgain", func(t *testing.T, f *fixture) {
		_, err := f.report("help", fact(5, named("r-1")))
		require.NoError(t, err)
		_, err = f.Record(t.Context(), "help", []usage.FactDraft{fact(1), fact(6, named("r-1"))}, keyed("k"))
		requireCode(t, errs.RequestIDReused, err)
		_, err = f.Record(t.Context(), "no-such-agent", []usage.FactDraft{fact(1)}, keyed("k"))
		requireCode(t, errs.NotFound, err)
		broken := keyed("k")
		broken.Render = func(any) (models.StoredResponse, error) {
			return models.StoredResponse{}, errors.New("cannot be shown")
		}
		_, err = f.Record(t.Context(), "help", []usage.FactDraft{fact(1)}, broken)
		require.ErrorContains(t, err, "cannot be shown")
		require.EqualValues(t, 5, f.usage(t, "help").UsedToday, "an operation whose response cannot be stored has no effect")
		out, err := f.Record(t.Context(), "help", []usage.FactDraft{fact(1)}, keyed("k"))
		require.NoError(t, err)
		require.EqualValues(t, 6, out.Balance.UsedToday)
	})

	// New accounts and many expired reservations are written in transactions of their own, and the
	// key still has one effect.
	onEachDatabase(t, "WorkWithWhatMustBeDoneFirst", func(t *testing.T, f *fixture) {
		for range 300 {
			f.hold(t, "help", 1)
		}
		f.db.Clock.Advance(time.Hour)
		for range 2 {
			_, err := f.Reserve(t.Context(), "aid", usage.ReservationDraft{Tokens: new(int64(6_000))}, keyed("k"))
			require.NoError(t, err)
		}
		require.EqualValues(t, 6_000, f.usage(t, "aid").Reserved)
		require.EqualValues(t, 1, f.held(t))
	})
}
