package tools

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/internal/usage"
	"comet/models"
	"comet/store/storetest"
)

// TestWhatIsNotCountedYetStaysReserved: calls that have ended and are not counted are in no
// fact. While they are in none their tokens are reserved, also where more is refused: another
// replica would be granted them.
func TestWhatIsNotCountedYetStaysReserved(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		reg, ledger := registry.New(db.Store, nil), usage.New(db.Store, nil)
		require.NoError(t, reg.Bootstrap(t.Context()))
		id, level, sphere, frequency, parent, budget := "crowd", models.LevelSpecialist, 8, 555, "orch-my-team", int64(1000)
		_, err := reg.Create(t.Context(), models.System(), models.AgentDraft{
			ID: &id, Name: &id, Level: &level, SphereID: &sphere, FrequencyHz: &frequency, ParentID: &parent, TokenBudget: models.Some(budget), Capabilities: []string{},
		}, nil)
		require.NoError(t, err)
		reserved := func() int64 {
			u, err := ledger.Usage(t.Context(), id)
			require.NoError(t, err)
			return u.Reserved
		}
		one, other := newPrepaid(ledger, db.Now), newPrepaid(ledger, db.Now)

		a, err := one.Reserve(t.Context(), id, 100)
		require.NoError(t, err)
		require.EqualValues(t, 500, reserved(), "half of what is left")
		a.finishCall(100, 450, db.Now())
		_, err = one.Reserve(t.Context(), id, 600)
		require.True(t, errs.Is(err, errs.BudgetExceeded), "%v", err)
		require.EqualValues(t, 450, reserved(), "what the call is estimated at")

		_, err = other.Reserve(t.Context(), id, 551)
		require.True(t, errs.Is(err, errs.BudgetExceeded), "%v", err)
		_, err = other.Reserve(t.Context(), id, 550)
		require.NoError(t, err, "the rest is free")
		require.EqualValues(t, 1000, reserved())
	})
}

// TestALedgerThatDoesNotAnswerHoldsUpNobodyForEver: who calls while the account is dry and
// somebody else waits for the ledger is told so after a while.
func TestALedgerThatDoesNotAnswerHoldsUpNobodyForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, begun := newPrepaid(nil, time.Now), time.Now()
		m.account("crowd").ledgerAccess <- struct{}{}
		_, err := m.Reserve(t.Context(), "crowd", 1)
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		require.Equal(t, ledgerTimeout, time.Since(begun))
	})
}
