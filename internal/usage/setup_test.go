package usage_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a ledger over a small tree: nova, orch, spec and other under orch, help
// and aid under spec. Budgets: orch 100,000, spec and other 25,000, help and aid
// 10,000. The clock shows 2026-01-10T15:30:00Z.
type fixture struct {
	*usage.Ledger
	db *storetest.DB
}

func setup(t *testing.T, db *storetest.DB) *fixture {
	t.Helper()
	db.Clock.Advance(time.Date(2026, 1, 10, 15, 30, 0, 0, time.UTC).Sub(db.Clock.Now()))
	f := &fixture{Ledger: usage.New(db.Store, nil), db: db}
	f.write(t, func(tx *store.Tx) error {
		for _, a := range []models.Agent{
			{ID: "nova", Level: 0, FrequencyHz: 999},
			{ID: "orch", Level: 1, FrequencyHz: 888, ParentID: new("nova"), TokenBudget: new(int64(100_000))},
			{ID: "rival", Level: 1, FrequencyHz: 888, ParentID: new("nova"), TokenBudget: new(int64(100_000))},
			{ID: "spec", Level: 2, FrequencyHz: 555, ParentID: new("orch"), TokenBudget: new(int64(25_000))},
			{ID: "other", Level: 2, FrequencyHz: 555, ParentID: new("orch"), TokenBudget: new(int64(25_000))},
			{ID: "help", Level: 3, FrequencyHz: 444, ParentID: new("spec"), TokenBudget: new(int64(10_000))},
			{ID: "aid", Level: 3, FrequencyHz: 444, ParentID: new("spec"), TokenBudget: new(int64(10_000))},
		} {
			a.Name, a.IsActive, a.Version, a.CreatedAt, a.UpdatedAt = a.ID, true, 1, tx.Now(), tx.Now()
			if a.BudgetScope = models.ScopeOwn; a.Level > 0 {
				a.SphereID = new(1)
			}
			if err := tx.InsertAgent(a); err != nil {
				return err
			}
		}
		return nil
	})
	return f
}

func (f *fixture) write(t *testing.T, fn func(*store.Tx) error) {
	t.Helper()
	require.NoError(t, f.db.Write(t.Context(), fn))
}

// change stores a changed agent, as the registry does.
func (f *fixture) change(t *testing.T, id string, set func(*models.Agent)) {
	t.Helper()
	f.write(t, func(tx *store.Tx) error {
		if err := tx.LockChains(); err != nil {
			return err
		}
		before, err := tx.Agent(id)
		if err != nil {
			return err
		}
		after := before
		set(&after)
		return tx.UpdateAgent(before, after)
	})
}

func (f *fixture) record(t *testing.T, id string, tokens int64) models.Fact {
	t.Helper()
	out, err := f.Record(t.Context(), models.System(), id, []models.FactDraft{{Tokens: &tokens}}, nil)
	require.NoError(t, err)
	return out.Facts[0]
}

func (f *fixture) reserve(id string, tokens int64) (models.Reservation, error) {
	return f.Reserve(context.Background(), models.System(), id, models.ReservationDraft{Tokens: &tokens}, nil)
}

func (f *fixture) settle(id, reservation string, tokens int64) (models.Settled, error) {
	return f.Settle(context.Background(), models.System(), id, reservation, models.Settlement{Tokens: &tokens}, nil)
}

func (f *fixture) usage(t *testing.T, id string) models.Usage {
	t.Helper()
	u, err := f.Usage(t.Context(), id)
	require.NoError(t, err)
	return u
}

// sound fails unless every sum is what its rows add up to.
func (f *fixture) sound(t *testing.T) {
	t.Helper()
	v, err := f.Verify(t.Context())
	require.NoError(t, err)
	require.Empty(t, v.Differences)
	require.Zero(t, v.Total)
}

// alerts returns the budget events so far, as "type agent scope".
func (f *fixture) alerts(t *testing.T) []string {
	t.Helper()
	f.write(t, func(tx *store.Tx) error {
		_, _, err := tx.NumberEvents()
		return err
	})
	list, err := f.db.EventsAfter(t.Context(), 0, 1000)
	require.NoError(t, err)
	var out []string
	for _, e := range list {
		var data models.BudgetAlert
		require.NoError(t, json.Unmarshal(e.Data, &data))
		require.Equal(t, e.Key, data.AgentID)
		out = append(out, string(e.Type)+" "+data.AgentID+" "+string(data.Scope))
	}
	return out
}
