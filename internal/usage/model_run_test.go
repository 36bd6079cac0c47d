package usage_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestLedgerMatchesModel runs random operations one after another while the clock
// moves, and compares the result of each call and the state of the ledger with the model: once with
// a seed that covers every rule, once with another one.
func TestLedgerMatchesModel(t *testing.T) {
	t.Parallel()
	t.Run("KnownSeed", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { requireVaried(t, matchesModel(t, db, 1, scaled(1500))) })
	})
	t.Run("OtherSeed", func(t *testing.T) {
		t.Parallel()
		s := testkit.Seed(t)
		storetest.Run(t, func(t *testing.T, db *storetest.DB) { matchesModel(t, db, s, scaled(900)) })
	})
}

// modelRun is a ledger and its model, with the ids that each gave to the same rows.
type modelRun struct {
	*usage.Ledger
	t            *testing.T
	db           *storetest.DB
	m            *model
	ids          []string
	reservations []string
	additions    []string
	log          []string
}

// matchesModel runs n operations and returns how often each operation had each result.
func matchesModel(t *testing.T, db *storetest.DB, s uint64, n int) map[string]map[errs.Code]int {
	t.Helper()
	r := newModelRun(t, db)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last operations of seed %d:\n%s", s, strings.Join(r.log[max(0, len(r.log)-60):], "\n"))
		}
	})
	g := &generator{rand.New(rand.NewPCG(s, 0)), r, map[string]usage.FactDraft{}}
	outcomes := map[string]map[errs.Code]int{}
	for i := range n {
		db.Clock.Advance(g.tick())
		r.m.now = db.Now()
		o := g.next()
		r.log = append(r.log, r.m.now.Format("02 15:04:05.000000 ")+o.text)
		want, got := o.want(r.m), o.real()
		require.Equal(t, want, got, "operation %d: %s", i, o.text)
		if outcomes[o.verb] == nil {
			outcomes[o.verb] = map[errs.Code]int{}
		}
		outcomes[o.verb][got.code]++
		if i%20 == 0 || i == n-1 {
			r.requireSame()
		}
	}
	return outcomes
}

// newModelRun creates a tree of 15 agents.
func newModelRun(t *testing.T, db *storetest.DB) *modelRun {
	t.Helper()
	r := &modelRun{Ledger: usage.New(db.Store, nil), t: t, db: db, m: &model{
		agents: map[string]store.Spender{}, days: map[string]int64{}, counting: map[string]bool{}, warned: map[string]int64{}, exceeded: map[string]int64{},
		alerts: []alert{}, keys: map[string]time.Time{},
	}}
	for _, link := range []struct {
		parent string
		budget int64
		ids    []string
	}{
		{"nova", 12_000, []string{"o1", "o2"}},
		{"o1", 5_000, []string{"s1", "s2"}}, {"o2", 5_000, []string{"s3", "s4"}},
		{"s1", 2_000, []string{"a1", "a2", "a3"}}, {"s2", 2_000, []string{"a4", "a5"}}, {"s3", 2_000, []string{"a6", "a7"}}, {"s4", 2_000, []string{"a8"}},
	} {
		r.insert(store.Spender{ID: "nova"})
		for _, id := range link.ids {
			r.insert(store.Spender{ID: id, Level: r.m.agents[link.parent].Level + 1, ParentID: link.parent, TokenBudget: &link.budget})
		}
	}
	return r
}

func (r *modelRun) insert(s store.Spender) {
	r.t.Helper()
	if _, there := r.m.agents[s.ID]; there {
		return
	}
	s.IsActive, s.BudgetScope, s.Version = true, models.ScopeOwn, 1
	r.m.agents[s.ID], r.ids = s, append(r.ids, s.ID)
	a := models.Agent{
		ID: s.ID, Name: s.ID, Level: s.Level, FrequencyHz: []int{999, 888, 555, 444}[s.Level], TokenBudget: s.TokenBudget,
		IsActive: true, Version: 1, CreatedAt: r.db.Now(), UpdatedAt: r.db.Now(),
	}
	if s.ParentID != "" {
		a.ParentID, a.SphereID = &s.ParentID, new(1)
	}
	require.NoError(r.t, r.db.Write(r.t.Context(), func(tx *store.Tx) error { return tx.Agents().Insert(a) }))
}

// requireSame compares the whole state of the ledger with the model.
func (r *modelRun) requireSame() {
	r.t.Helper()
	for _, id := range r.ids {
		got, err := r.Usage(r.t.Context(), id)
		require.NoError(r.t, err)
		require.Equal(r.t, r.m.usage(id), got)
	}
	require.Equal(r.t, r.m.alerts, allAlerts(r.t, r.db))
	for range min(5, len(r.reservations)) {
		n := rand.IntN(len(r.reservations))
		got, err := r.Reservation(r.t.Context(), r.m.reservations[n].agent, r.reservations[n])
		require.NoError(r.t, err)
		want := r.m.reservations[n].state
		if want == models.ReservationHeld && !r.m.reservations[n].expires.After(r.m.now) {
			want = models.ReservationExpired
		}
		require.Equal(r.t, want, got.State)
	}
	tree, err := r.Tree(r.t.Context())
	require.NoError(r.t, err)
	today := dayOf(r.m.now)
	for _, id := range r.ids {
		require.Equal(r.t, r.m.used(id, today), tree.Used[id], id)
		require.Equal(r.t, r.m.rollUp(id, today), tree.SubtreeUsed[id], id)
	}
	v, err := r.Verify(r.t.Context())
	require.NoError(r.t, err)
	require.Empty(r.t, v.Differences)
	require.EqualValues(r.t, len(r.m.facts), v.Facts)
}

// requireVaried requires that the operations covered the results that they were generated for.
func requireVaried(t *testing.T, outcomes map[string]map[errs.Code]int) {
	t.Helper()
	if testing.Short() || costly > 1 {
		return // too few of them
	}
	for verb, codes := range map[string][]errs.Code{
		"record": {"", errs.NotFound, errs.RequestIDReused}, "reserve": {"", errs.NotFound, errs.BudgetExceeded, errs.AgentDeactivated},
		"settle": {"", errs.NotFound, errs.ReservationEnded}, "release": {"", errs.NotFound, errs.ReservationEnded},
		"add": {"", errs.InvalidRequest}, "remove": {"", errs.NotFound}, "reset": {""}, "change": {""},
	} {
		for _, code := range codes {
			require.Positive(t, outcomes[verb][code], "no %s met %q: %v", verb, code, outcomes)
		}
	}
}

// onceOf is the Idempotency-Key of an operation, nil for none.
func onceOf(key string) *models.Idempotency {
	if key == "" {
		return nil
	}
	return keyed(key)
}

// unlessReplayed returns the observation, unless the response is a stored one.
func unlessReplayed(once *models.Idempotency, h observed) observed {
	if once != nil && once.Replay != nil {
		return observed{stored: true}
	}
	return h
}

func (r *modelRun) doRecord(id string, drafts []usage.FactDraft, key string) observed {
	once := onceOf(key)
	out, err := r.Record(r.t.Context(), id, drafts, once)
	h := observe(err)
	if err == nil {
		h.balance = &out.Balance
		for _, f := range out.Facts {
			h.replayed, h.at = append(h.replayed, f.Replayed), append(h.at, f.At)
		}
	}
	return unlessReplayed(once, h)
}

func (r *modelRun) doReserve(id string, tokens, ttl int64, key string) observed {
	once := onceOf(key)
	got, err := r.Reserve(r.t.Context(), id, usage.ReservationDraft{Tokens: &tokens, TTLSeconds: &ttl}, once)
	h := unlessReplayed(once, observe(err))
	if err == nil && !h.stored {
		h.expires = got.ExpiresAt
		r.reservations = append(r.reservations, got.ID)
	}
	return h
}

// reservationID returns the id of the reservation n in the ledger.
func (r *modelRun) reservationID(n int) string {
	if n < 0 {
		return uuid.NewString()
	}
	return r.reservations[n]
}

func (r *modelRun) doSettle(id string, n int, tokens int64, labels models.FactLabels, key string) observed {
	once := onceOf(key)
	s, err := r.Settle(r.t.Context(), id, r.reservationID(n), usage.Settlement{Tokens: &tokens, FactLabels: labels}, once)
	h := observe(err)
	if err == nil {
		h.late, h.replayed, h.balance = s.Late, []bool{s.Replayed}, &s.Balance
	}
	return unlessReplayed(once, h)
}

func (r *modelRun) doRelease(id string, n int) observed {
	return observe(r.Release(r.t.Context(), id, r.reservationID(n)))
}

func (r *modelRun) doAdd(id string, tokens int64, term time.Duration, key string) observed {
	once := onceOf(key)
	d := usage.BudgetAdditionDraft{Tokens: &tokens, ExpiresAt: new(r.db.Now().Add(term)), Reason: new("why")}
	a, err := r.AddBudget(r.t.Context(), models.System(), id, d, once)
	h := unlessReplayed(once, observe(err))
	if err == nil && !h.stored {
		r.additions = append(r.additions, a.ID)
	}
	return h
}

func (r *modelRun) doRemove(id string, n int) observed {
	name := uuid.NewString()
	if n >= 0 {
		name = r.additions[n]
	}
	return observe(r.RemoveBudget(r.t.Context(), models.System(), id, name))
}

func (r *modelRun) doReset(id, key string) observed {
	once := onceOf(key)
	b, err := r.Reset(r.t.Context(), models.System(), id, usage.ResetDraft{Reason: new("why")}, once)
	h := observe(err)
	if err == nil {
		h.balance = &b
	}
	return unlessReplayed(once, h)
}

func (r *modelRun) doChange(s store.Spender) observed {
	return observe(r.db.Write(r.t.Context(), func(tx *store.Tx) error {
		if err := tx.Agents().LockChains(); err != nil {
			return err
		}
		before, err := tx.Agents().Lock(s.ID)
		if err != nil {
			return err
		}
		after := before
		after.TokenBudget, after.BudgetScope, after.ParentID, after.IsActive = s.TokenBudget, s.BudgetScope, &s.ParentID, s.IsActive
		return tx.Agents().Update(before, after)
	}))
}
