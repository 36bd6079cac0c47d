package usage_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/usage"
	"comet/models"
)

// recordOnce has every caller record the same facts, each in different batches.
func recordOnce(t *testing.T, c *crowd) {
	const facts = 40
	var fresh, replays atomic.Int64
	c.all(callers*10/costly, func(l *usage.Ledger, r *rand.Rand, _ int) {
		names := r.Perm(facts)
		for len(names) > 0 {
			n := min(len(names), 1+r.IntN(15))
			var batch []usage.FactDraft
			for _, name := range names[:n] {
				batch = append(batch, fact(int64(name+1), named(strconv.Itoa(name))))
			}
			names = names[n:]
			out, err := l.Record(context.Background(), "help", batch, nil)
			if err != nil {
				t.Errorf("recording facts fails: %v", err)
			}
			for i, f := range out.Facts {
				if f.Tokens != *batch[i].Tokens {
					t.Errorf("%+v for %+v", f, batch[i])
				}
				if f.Replayed {
					replays.Add(1)
				} else {
					fresh.Add(1)
				}
			}
		}
	})
	require.EqualValues(t, facts, fresh.Load())
	require.EqualValues(t, facts*(callers*10/costly)-facts, replays.Load())
	require.EqualValues(t, facts*(facts+1)/2, c.usage(t, "help").UsedToday)
}

// endOnce has several callers end the same reservations concurrently, before or after they expire.
func endOnce(t *testing.T, c *crowd, later time.Duration) {
	const rivals, used = 8, 7
	held := make([]models.Reservation, 400/costly)
	for i := range held {
		held[i] = c.hold(t, []string{"help", "aid"}[i%2], 10)
	}
	c.db.Clock.Advance(later)
	settled, released := make([]atomic.Int64, len(held)), make([]atomic.Int64, len(held))
	c.all(rivals*len(held), func(l *usage.Ledger, r *rand.Rand, i int) {
		n := i / rivals
		var err error
		if r.IntN(3) > 0 {
			var s usage.Settled
			s, err = l.Settle(context.Background(), held[n].AgentID, held[n].ID, usage.Settlement{Tokens: new(int64(used))}, nil)
			if err == nil && !s.Replayed {
				settled[n].Add(1)
			}
		} else if err = l.Release(context.Background(), held[n].AgentID, held[n].ID); err == nil {
			released[n].Add(1)
		}
		if err != nil && !errs.Is(err, errs.ReservationEnded) {
			t.Errorf("ending a reservation fails: %v", err)
		}
	})
	var sum int64
	for i := range held {
		got, err := c.Reservation(t.Context(), held[i].AgentID, held[i].ID)
		require.NoError(t, err)
		if got.State == models.ReservationSettled {
			require.EqualValues(t, 1, settled[i].Load(), "one caller settled it, the others received a replay")
			sum += used
		} else {
			require.Zero(t, settled[i].Load())
			require.Positive(t, released[i].Load())
		}
		if later == 0 { // an expired one may be released and settled then
			require.Equal(t, got.State == models.ReservationReleased, released[i].Load() > 0)
		}
	}
	require.Positive(t, sum)
	require.Equal(t, sum, c.usage(t, "help").UsedToday+c.usage(t, "aid").UsedToday)
	require.Zero(t, c.usage(t, "help").Reserved+c.usage(t, "aid").Reserved)
	require.Equal(t, 6_000-sum, c.leftBelow(t, "spec"))
}

// changeTree changes the tree repeatedly until the returned function is called.
func (c *crowd) changeTree(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	changes, done := 0, make(chan struct{})
	go func() {
		defer close(done)
		for r := rand.New(rand.NewPCG(1, 2)); ctx.Err() == nil; changes++ {
			id := []string{"help", "aid", "spec", "other", "orch", "rival"}[r.IntN(6)]
			parents := map[string][]string{"help": {"spec", "other"}, "aid": {"spec", "other"}, "spec": {"orch", "rival"}, "other": {"orch", "rival"}}[id]
			err := c.changed(id, func(a *models.Agent) {
				if parents != nil && r.IntN(2) == 0 {
					a.ParentID = &parents[r.IntN(2)]
				} else {
					a.BudgetScope = []models.BudgetScope{models.ScopeOwn, models.ScopeSubtree}[r.IntN(2)]
				}
			})
			if err != nil {
				t.Errorf("changing %s fails: %v", id, err)
			}
		}
	}()
	return func() {
		cancel()
		<-done
		t.Logf("%d changes", changes)
		require.Positive(t, changes)
	}
}

// spendWhileTheTreeChanges moves agents and changes budget scopes while callers spend.
func spendWhileTheTreeChanges(t *testing.T, c *crowd) {
	stop := c.changeTree(t)
	var held sync.Map
	c.all(scaled(callers*30), func(l *usage.Ledger, r *rand.Rand, i int) {
		id := []string{"help", "aid", "spec", "other"}[r.IntN(4)]
		got, err := l.Reserve(context.Background(), id, usage.ReservationDraft{Tokens: new(1 + r.Int64N(200))}, nil)
		if code := errs.CodeOf(err); code == errs.BudgetExceeded {
			return
		} else if code != "" {
			t.Errorf("a reservation fails: %v", err)
			return
		}
		c.own[id].take(t, id, got.Tokens)
		if r.IntN(4) == 0 {
			held.Store(i, got) // for a later caller
			return
		}
		if r.IntN(2) == 0 {
			c.own[id].out.Add(-got.Tokens)
			if err := l.Release(context.Background(), id, got.ID); err != nil {
				t.Errorf("a release fails: %v", err)
			}
			return
		}
		c.own[id].out.Add(1 - got.Tokens)
		if _, err := l.Settle(context.Background(), id, got.ID, usage.Settlement{Tokens: new(int64(1))}, nil); err != nil {
			t.Errorf("a settlement fails: %v", err)
		}
	})
	stop()
	c.sound(t)
	held.Range(func(_, value any) bool {
		r := value.(models.Reservation)
		require.NoError(t, c.release(r.AgentID, r.ID))
		return true
	})
	var used int64
	for _, id := range []string{"help", "aid", "spec", "other", "orch", "rival"} {
		require.Zero(t, c.usage(t, id).Reserved, id)
		used += c.usage(t, id).UsedToday
	}
	require.Equal(t, used, c.subtree(t, "nova"))
	require.Equal(t, used, c.subtree(t, "orch")+c.subtree(t, "rival"))
}
