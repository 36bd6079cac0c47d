package usage_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// reservationsEnv is the environment variable with the number of reservations that the callers of
// TestConcurrentCallers request on each database.
const reservationsEnv = "COMET_TEST_LEDGER_RESERVATIONS"

const callers = 64

func reservations(t *testing.T) int {
	t.Helper()
	if text := os.Getenv(reservationsEnv); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, reservationsEnv)
		return n
	}
	return scaled(callers * 60)
}

// crowd is a set of callers that use the ledgers of several processes in turn. SQLite has one
// process.
type crowd struct {
	*fixture
	ledgers []*usage.Ledger
	budgets map[string]int64
	// own counts the tokens of the agents' own budgets, below those of the subtree budgets.
	own, below map[string]*book

	mu      sync.Mutex
	refused map[string]bool
	settled map[string]int64 // what was settled, by agent
	granted atomic.Int64
	denied  atomic.Int64
}

// book counts the tokens of one budget that are granted and not returned, as the callers see
// them: never more than the actual number.
type book struct {
	budget   int64
	out, top atomic.Int64
}

// take adds granted tokens. Call it after the grant.
func (b *book) take(t *testing.T, whose string, tokens int64) {
	t.Helper()
	out := b.out.Add(tokens)
	if out > b.budget {
		t.Errorf("%d tokens are granted of the %d of %s", out, b.budget, whose)
	}
	for top := b.top.Load(); out > top && !b.top.CompareAndSwap(top, out); top = b.top.Load() {
	}
}

// newCrowd creates a tree with small budgets. The budgets of orch and spec limit their subtrees, so
// up to three budgets decide each request.
func newCrowd(t *testing.T, db *storetest.DB) *crowd {
	t.Helper()
	c := &crowd{fixture: setup(t, db), budgets: map[string]int64{"orch": 9_000, "spec": 6_000, "other": 5_000, "help": 4_000, "aid": 4_000}}
	for id, budget := range c.budgets {
		c.change(t, id, func(a *models.Agent) {
			a.TokenBudget = &budget
			if id == "orch" || id == "spec" {
				a.BudgetScope = models.ScopeSubtree
			}
		})
	}
	c.ledgers = []*usage.Ledger{c.Ledger}
	if db.Database() == "postgres" {
		for range 2 {
			s, err := store.Open(t.Context(), db.Options)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, s.Close()) })
			c.ledgers = append(c.ledgers, usage.New(s, nil))
		}
	}
	c.open()
	return c
}

// open resets the books.
func (c *crowd) open() {
	c.own, c.below, c.refused, c.settled = map[string]*book{}, map[string]*book{}, map[string]bool{}, map[string]int64{}
	for id, budget := range c.budgets {
		c.own[id] = &book{budget: budget}
	}
	for _, id := range []string{"orch", "spec"} {
		c.below[id] = &book{budget: c.budgets[id]}
	}
}

// books calls enter with every book that counts the tokens of an agent.
func (c *crowd) books(id string, enter func(whose string, b *book)) {
	enter(id, c.own[id])
	if id == "spec" || id == "help" || id == "aid" {
		enter("the subtree of spec", c.below["spec"])
	}
	enter("the subtree of orch", c.below["orch"])
}

func (c *crowd) took(t *testing.T, id string, tokens int64) {
	t.Helper()
	c.books(id, func(whose string, b *book) { b.take(t, whose, tokens) })
}

// gives subtracts tokens that will be returned. Call it before they are returned.
func (c *crowd) gives(id string, tokens int64) {
	c.books(id, func(_ string, b *book) { b.out.Add(-tokens) })
}

// all has the callers make n requests in total and waits for them.
func (c *crowd) all(n int, one func(l *usage.Ledger, r *rand.Rand, i int)) {
	var wg sync.WaitGroup
	for k := range callers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(rand.Uint64(), uint64(k)))
			for i := k; i < n; i += callers {
				one(c.ledgers[i/callers%len(c.ledgers)], r, i)
			}
		})
	}
	wg.Wait()
}

func (c *crowd) anyAgent(r *rand.Rand) string {
	return []string{"help", "aid", "help", "aid", "spec", "other", "orch"}[r.IntN(7)]
}

// ask reserves tokens; ok is false if a budget refuses.
func (c *crowd) ask(t *testing.T, l *usage.Ledger, id string, tokens int64) (held models.Reservation, ok bool) {
	t.Helper()
	held, err := l.Reserve(context.Background(), id, usage.ReservationDraft{Tokens: &tokens}, nil)
	switch errs.CodeOf(err) {
	case "":
		c.granted.Add(1)
		c.took(t, id, tokens)
		return held, true
	case errs.BudgetExceeded:
		c.denied.Add(1)
		c.mu.Lock()
		c.refused[errs.From(err).Meta["agent_id"].(string)] = true
		c.mu.Unlock()
	default:
		t.Errorf("a reservation of %s fails: %v", id, err)
	}
	return held, false
}

// settle settles a reservation with the used tokens, at most the held ones.
func (c *crowd) settle(t *testing.T, l *usage.Ledger, r models.Reservation, used int64) {
	t.Helper()
	c.gives(r.AgentID, r.Tokens-used)
	if _, err := l.Settle(context.Background(), r.AgentID, r.ID, usage.Settlement{Tokens: &used}, nil); err != nil {
		t.Errorf("a settlement of %s fails: %v", r.AgentID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settled[r.AgentID] += used
}

func (c *crowd) giveBack(t *testing.T, l *usage.Ledger, r models.Reservation) {
	t.Helper()
	c.gives(r.AgentID, r.Tokens)
	if err := l.Release(context.Background(), r.AgentID, r.ID); err != nil {
		t.Errorf("a release of %s fails: %v", r.AgentID, err)
	}
}

// watch checks the ledger continuously until the returned function is called: the used and held
// tokens never exceed a budget, and every sum equals the total of its rows.
func (c *crowd) watch(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	looks, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for ; ctx.Err() == nil || looks == 0; looks++ {
			for id, budget := range c.budgets {
				u, err := c.Usage(context.Background(), id)
				if err != nil || u.UsedToday+u.Reserved > budget {
					t.Errorf("%s shows %+v, %v", id, u, err)
				}
			}
			v, err := c.Verify(context.Background())
			if err != nil || v.Total > 0 {
				t.Errorf("while requests run, Verify returns %+v, %v", v.Differences, err)
			}
			runtime.Gosched()
		}
	}()
	return func() {
		cancel()
		<-done
		t.Logf("looked %d times", looks)
	}
}

// TestConcurrentCallers has 64 callers send requests concurrently, to one process on SQLite and to
// three processes on one PostgreSQL database.
func TestConcurrentCallers(t *testing.T) {
	t.Parallel()
	run := func(name string, test func(t *testing.T, c *crowd)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T, db *storetest.DB) {
				c := newCrowd(t, db)
				test(t, c)
				c.sound(t)
			})
		})
	}
	run("NeverOverspendByAToken", func(t *testing.T, c *crowd) {
		for day := range 2 {
			c.open()
			c.day(t, reservations(t)/2)
			c.requireEvents(t, day)
			c.clock(t, fmt.Sprintf("2026-01-%dT00:00:00", 11+day))
		}
	})
	run("FillABudgetToTheLastToken", func(t *testing.T, c *crowd) {
		n := 10_000 / costly
		c.all(n, func(l *usage.Ledger, r *rand.Rand, _ int) {
			c.ask(t, l, c.anyAgent(r), 1+r.Int64N(5)*int64(costly))
		})
		for _, id := range []string{"help", "aid", "spec", "other", "orch"} {
			for ok := true; ok; {
				_, ok = c.ask(t, c.Ledger, id, 1)
			}
		}
		require.Equal(t, int64(9_000), c.below["orch"].out.Load(), "exactly the budget is granted")
		require.Zero(t, c.leftBelow(t, "orch"))
		for id, b := range c.own {
			require.Equal(t, b.out.Load(), c.usage(t, id).Reserved, id)
		}
	})
	run("RecordAFactOnce", recordOnce)
	run("EndAReservationOnce", func(t *testing.T, c *crowd) { endOnce(t, c, 0) })
	run("EndAnExpiredReservationOnce", func(t *testing.T, c *crowd) { endOnce(t, c, time.Hour) })
	run("SpendWhileTheTreeChanges", spendWhileTheTreeChanges)
}

// day makes n reservations, each of which is settled, released or left to expire.
func (c *crowd) day(t *testing.T, n int) {
	t.Helper()
	const settled, target = 60, 8_000 // percent, tokens
	most := int64(max(1, target*100/(n*settled)+1))
	odds := float64(target*100) / (float64(n*settled) * float64(most))
	var forgotten atomic.Int64
	begun, stop := time.Now(), c.watch(t)
	c.all(n, func(l *usage.Ledger, r *rand.Rand, _ int) {
		id := c.anyAgent(r)
		held, ok := c.ask(t, l, id, 1+r.Int64N(300))
		if !ok {
			return
		}
		for range r.IntN(20) {
			runtime.Gosched()
		}
		switch fate := r.IntN(100); {
		case fate < 2 && forgotten.Add(held.Tokens) < 600:
		case fate < settled:
			used := int64(0)
			if r.Float64() < odds {
				used = min(most, held.Tokens)
			}
			c.settle(t, l, held, used)
		default:
			c.giveBack(t, l, held)
		}
	})
	took := time.Since(begun)
	stop()
	t.Logf("%d reservations in %s (%.0f/s): %d granted, %d refused in all; at most %d of 9,000 and %d of 6,000 were out", n, took.Round(time.Millisecond),
		float64(n)/took.Seconds(), c.granted.Load(), c.denied.Load(), c.below["orch"].top.Load(), c.below["spec"].top.Load())
	for id, b := range c.own {
		u := c.usage(t, id)
		require.Equal(t, b.out.Load(), u.UsedToday+u.Reserved, "%s, from the outside and from the inside", id)
		require.Equal(t, c.settled[id], u.UsedToday, id)
	}
	c.db.Clock.Advance(301 * time.Second)
	for id := range c.budgets {
		c.record(t, id, 1)
		require.Zero(t, c.usage(t, id).Reserved, "nothing stays reserved without an open reservation: %s", id)
	}
	c.requireTwiceFull(t)
}

// requireTwiceFull requires that no release was lost: all tokens that no fact used can be reserved.
func (c *crowd) requireTwiceFull(t *testing.T) {
	t.Helper()
	for _, id := range []string{"spec", "orch"} {
		left := c.leftBelow(t, id)
		require.Equal(t, c.budgets[id]-c.subtree(t, id), left)
		if own := c.left(t, id); own < left {
			left = own
		}
		if left > 0 {
			require.NoError(t, c.release(id, c.hold(t, id, left).ID))
		}
	}
}

// requireEvents requires exactly one budget_warning and one budget_exceeded for each agent and day
// that reached the limit.
func (c *crowd) requireEvents(t *testing.T, day int) {
	t.Helper()
	type key struct {
		kind  models.EventType
		agent string
	}
	got, today := map[key]int{}, time.Date(2026, 1, 10+day, 0, 0, 0, 0, time.UTC).Format(time.DateOnly)
	for _, a := range allAlerts(t, c.db) {
		if a.Day == today {
			got[key{a.kind, a.AgentID}]++
		}
	}
	want := map[key]int{}
	for id, budget := range c.budgets {
		u := c.usage(t, id)
		used := u.UsedToday
		if u.BudgetScope == models.ScopeSubtree {
			used = max(used, u.SubtreeUsedToday)
		}
		if used*100 >= budget*80 {
			want[key{events.BudgetWarning, id}] = 1
		}
		if c.refused[id] || used > budget {
			want[key{events.BudgetExceeded, id}] = 1
		}
	}
	require.Equal(t, want, got)
	require.NotEmpty(t, c.refused)
}
