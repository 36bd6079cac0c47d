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

// TestUncountedTokensStayReserved checks that tokens of finished calls stay reserved until they are
// charged, also after a refusal: another replica would be granted them.
func TestUncountedTokensStayReserved(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		reg, ledger := registry.New(db.Store, nil), usage.New(db.Store, nil)
		require.NoError(t, reg.Bootstrap(t.Context()))
		id, level, sphere, frequency, parent, budget := "busy-agent", models.LevelSpecialist, 8, 555, "orch-my-team", int64(1000)
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
		require.EqualValues(t, 500, reserved(), "half of the remaining budget")
		a.finishCall(100, 450, db.Now())
		_, err = one.Reserve(t.Context(), id, 600)
		require.True(t, errs.Is(err, errs.BudgetExceeded), "%v", err)
		require.EqualValues(t, 450, reserved(), "the estimate of the call")

		_, err = other.Reserve(t.Context(), id, 551)
		require.True(t, errs.Is(err, errs.BudgetExceeded), "%v", err)
		_, err = other.Reserve(t.Context(), id, 550)
		require.NoError(t, err, "the rest is available")
		require.EqualValues(t, 1000, reserved())
	})
}

// TestReserveTimesOut checks that a call fails when the account is empty and the ledger does not
// respond.
func TestReserveTimesOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, start := newPrepaid(nil, time.Now), time.Now()
		p.account("busy-agent").ledgerAccess <- struct{}{}
		_, err := p.Reserve(t.Context(), "busy-agent", 1)
		require.True(t, errs.Is(err, errs.Unavailable), "%v", err)
		require.Equal(t, ledgerTimeout, time.Since(start))
	})
}
