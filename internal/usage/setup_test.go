package usage_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/errs"
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
			if err := tx.Agents().Insert(a); err != nil {
				return err
			}
		}
		return nil
	})
	return f
}

// onEachDatabase runs one case with a new ledger on every database. At the end every stored sum
// must equal the sum of its rows.
func onEachDatabase(t *testing.T, name string, test func(t *testing.T, f *fixture)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			f := setup(t, db)
			test(t, f)
			f.sound(t)
		})
	})
}

// clock sets the clock to a time on the day of the fixture, such as "15:30:00", or to a date and
// time such as "2026-01-11T00:00:00.000001".
func (f *fixture) clock(t *testing.T, text string) time.Time {
	t.Helper()
	if !strings.Contains(text, "T") {
		text = "2026-01-10T" + text
	}
	at, err := time.Parse("2006-01-02T15:04:05.999999", text)
	require.NoError(t, err)
	f.db.Clock.Advance(at.Sub(f.db.Clock.Now()))
	return at
}

func (f *fixture) write(t *testing.T, fn func(*store.Tx) error) {
	t.Helper()
	require.NoError(t, f.db.Write(t.Context(), fn))
}

// change stores a changed agent, as the registry does.
func (f *fixture) change(t *testing.T, id string, set func(*models.Agent)) {
	t.Helper()
	require.NoError(t, f.changed(id, set))
}

func (f *fixture) changed(id string, set func(*models.Agent)) error {
	return f.db.Write(context.Background(), func(tx *store.Tx) error {
		if err := tx.Agents().LockChains(); err != nil {
			return err
		}
		before, err := tx.Agents().Lock(id)
		if err != nil {
			return err
		}
		after := before
		set(&after)
		return tx.Agents().Update(before, after)
	})
}

func (f *fixture) record(t *testing.T, id string, tokens int64) models.Fact {
	t.Helper()
	out, err := f.Record(t.Context(), id, []usage.FactDraft{{Tokens: &tokens}}, nil)
	require.NoError(t, err)
	return out.Facts[0]
}

// report records drafts.
func (f *fixture) report(id string, drafts ...usage.FactDraft) (usage.Recorded, error) {
	return f.Record(context.Background(), id, drafts, nil)
}

func fact(tokens int64, set ...func(*usage.FactDraft)) usage.FactDraft {
	d := usage.FactDraft{Tokens: &tokens}
	for _, s := range set {
		s(&d)
	}
	return d
}

// named sets the request_id of a draft.
func named(requestID string) func(*usage.FactDraft) {
	return func(d *usage.FactDraft) { d.RequestID = &requestID }
}

// hold reserves tokens and requires that they are granted.
func (f *fixture) hold(t *testing.T, id string, tokens int64) models.Reservation {
	t.Helper()
	r, err := f.reserve(id, tokens)
	require.NoError(t, err)
	return r
}

// refused requires that a reservation is refused, and returns the agent whose budget refused it.
func (f *fixture) refused(t *testing.T, id string, tokens int64) string {
	t.Helper()
	_, err := f.reserve(id, tokens)
	requireCode(t, errs.BudgetExceeded, err)
	return errs.From(err).Meta["agent_id"].(string)
}

func (f *fixture) reserve(id string, tokens int64) (models.Reservation, error) {
	return f.Reserve(context.Background(), id, usage.ReservationDraft{Tokens: &tokens}, nil)
}

func (f *fixture) settle(id, reservation string, tokens int64) (usage.Settled, error) {
	return f.Settle(context.Background(), id, reservation, usage.Settlement{Tokens: &tokens}, nil)
}

func (f *fixture) release(id, reservation string) error {
	return f.Release(context.Background(), id, reservation)
}

// add gives an agent an additional budget that ends after a while.
func (f *fixture) add(t *testing.T, id string, tokens int64, term time.Duration) models.BudgetAddition {
	t.Helper()
	d := usage.BudgetAdditionDraft{Tokens: &tokens, ExpiresAt: new(f.db.Now().Add(term)), Reason: new("a busy day")}
	a, err := f.AddBudget(t.Context(), models.System(), id, d, nil)
	require.NoError(t, err)
	return a
}

func (f *fixture) reset(t *testing.T, id string) usage.Balance {
	t.Helper()
	b, err := f.Reset(t.Context(), models.System(), id, usage.ResetDraft{Reason: new("a loop, fixed")}, nil)
	require.NoError(t, err)
	return b
}

// scope changes the budget scope of an agent.
func (f *fixture) scope(t *testing.T, id string, scope models.BudgetScope) {
	t.Helper()
	f.change(t, id, func(a *models.Agent) { a.BudgetScope = scope })
}

// move changes the parent of an agent.
func (f *fixture) move(t *testing.T, id, parent string) {
	t.Helper()
	f.change(t, id, func(a *models.Agent) { a.ParentID = &parent })
}

// subtree returns today's usage of an agent and its descendants.
func (f *fixture) subtree(t *testing.T, id string) int64 {
	t.Helper()
	return f.usage(t, id).SubtreeUsedToday
}

// left returns the remaining tokens of an agent's own budget.
func (f *fixture) left(t *testing.T, id string) int64 {
	t.Helper()
	return *f.usage(t, id).Remaining
}

// leftBelow returns the remaining tokens of an agent and its descendants together.
func (f *fixture) leftBelow(t *testing.T, id string) int64 {
	t.Helper()
	u := f.usage(t, id)
	require.NotNil(t, u.SubtreeRemaining, "the budget of %q covers its subtree", id)
	return *u.SubtreeRemaining
}

func (f *fixture) usage(t *testing.T, id string) usage.AgentUsage {
	t.Helper()
	u, err := f.Usage(t.Context(), id)
	require.NoError(t, err)
	return u
}

// sound requires that every stored sum equals the sum of its rows.
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
	var out []string
	for _, a := range allAlerts(t, f.db) {
		out = append(out, string(a.kind)+" "+a.AgentID+" "+string(a.Scope))
	}
	return out
}

// alert is a budget event.
type alert struct {
	kind models.EventType
	usage.BudgetAlert
}

// allAlerts numbers the events and returns the budget events among them, in order.
func allAlerts(t *testing.T, db *storetest.DB) []alert {
	t.Helper()
	for more := true; more; {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			after, upTo, err := tx.Events().Number(1000)
			more = upTo > after
			return err
		}))
	}
	list, err := db.Events(t.Context()).After(0, 10_000)
	require.NoError(t, err)
	out := make([]alert, 0, len(list))
	for _, e := range list {
		a := alert{kind: e.Type}
		require.NoError(t, json.Unmarshal(e.Data, &a.BudgetAlert))
		require.Equal(t, e.Key, a.AgentID)
		out = append(out, a)
	}
	return out
}

func requireCode(t *testing.T, want errs.Code, err error) {
	t.Helper()
	require.Equal(t, want, errs.CodeOf(err), "%v", err)
}

// requireFields requires an error that names exactly these fields, each as "pointer
// rule".
func requireFields(t *testing.T, want []string, err error) {
	t.Helper()
	requireCode(t, errs.InvalidRequest, err)
	var got []string
	for _, f := range errs.From(err).Fields {
		got = append(got, f.Pointer+" "+f.Rule)
	}
	require.Equal(t, want, got)
}
