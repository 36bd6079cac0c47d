package webhooks_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

// run is receivers of the same facts, with a clock that advances as soon as
// nothing is left to do: from one due attempt to the next.
type run struct {
	*fixture
	begun     time.Time
	receivers []*subscriber

	mu    sync.Mutex
	facts map[label]fact
}

// label names a fact in its event's data.
type label struct {
	ID string `json:"id"` // the agent
	N  int    `json:"n"`  // counts its facts
}

type fact struct {
	kind models.EventType
	at   time.Time
	data string
}

// newRun starts nothing; where several replicas may share the database there are two.
func newRun(t *testing.T, db *storetest.DB, opts *webhooks.Options) *run {
	t.Helper()
	return &run{fixture: newFixture(t, db, opts), begun: db.Now(), facts: map[label]fact{}}
}

// spread returns the least and the greatest that rand.Float64 may, and nothing between,
// so that there are not too many moments at which something is due.
func spread(seed uint64) func() float64 {
	var mu sync.Mutex
	source := rand.New(rand.NewPCG(seed, seed))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return []float64{0, 0.999}[source.IntN(2)]
	}
}

// emit commits the facts [from, to) of every agent, those of one agent one after the
// other and those of different ones side by side, and some that are taken back.
func (r *run) emit(t *testing.T, agents, from, to int, kindOf func(label) models.EventType) {
	t.Helper()
	done := make(chan error, agents)
	for agent := range agents {
		go func() {
			for n := from; n < to; {
				size := min(1+(n+agent)%4, to-n)
				if err := r.commit(agentID(agent), n, size, kindOf); err != nil {
					done <- err
					return
				}
				n += size
			}
			done <- nil
		}()
	}
	for range agents {
		require.NoError(t, take(t, done))
	}
}

func agentID(n int) string { return fmt.Sprintf("agent-%d", n) }

func (r *run) commit(id string, from, size int, kindOf func(label) models.EventType) error {
	takenBack := errors.New("taken back")
	err := r.db.Write(context.Background(), func(tx *store.Tx) error {
		if err := tx.Events().Emit(events.AgentUpdated, id, label{id, -1}); err != nil {
			return err
		}
		return takenBack
	})
	if !errors.Is(err, takenBack) {
		return fmt.Errorf("a transaction is not taken back: %w", err)
	}
	return r.db.Write(context.Background(), func(tx *store.Tx) error {
		for n := from; n < from+size; n++ {
			l := label{id, n}
			data, err := json.Marshal(map[string]any{"id": id, "n": n, "note": fmt.Sprintf("“%s” <é>&\u2028 %d", id, n)})
			if err != nil {
				return err
			}
			r.mu.Lock()
			r.facts[l] = fact{kindOf(l), tx.Now(), string(data)}
			r.mu.Unlock()
			if err := tx.Events().Emit(kindOf(l), id, json.RawMessage(data)); err != nil {
				return err
			}
		}
		return nil
	})
}

// settle waits until nothing is due and no event waits for its deliveries. It returns
// when the next attempt is due, the zero time for never.
func (r *run) settle(t *testing.T) (next time.Time) {
	t.Helper()
	require.Eventually(t, func() bool {
		for range 2 { // a delivery may be the reason of another event
			var quiet bool
			if next, quiet = r.due(t); !quiet {
				return false
			}
			if waiting, err := r.db.Events(context.Background()).Pending(); err != nil || waiting {
				return false
			}
		}
		return true
	}, 3*time.Minute, 5*time.Millisecond, "something stays due")
	return next
}

// due returns when the next attempt is; quiet where that is later than now.
func (r *run) due(t *testing.T) (next time.Time, quiet bool) {
	endpoints, err := r.db.Webhooks(context.Background()).DueEndpoints()
	if err != nil {
		t.Error(err)
		return next, false
	}
	for _, e := range endpoints {
		if next.IsZero() || e.Due.Before(next) {
			next = e.Due
		}
	}
	return next, next.IsZero() || next.After(r.db.Now())
}

// drive advances the clock by d.
func (r *run) drive(t *testing.T, d time.Duration) {
	t.Helper()
	until := r.db.Now().Add(d)
	for {
		next := r.settle(t)
		if next.IsZero() || next.After(until) {
			break
		}
		r.db.Clock.Advance(next.Sub(r.db.Now()))
	}
	r.db.Clock.Advance(until.Sub(r.db.Now()))
	r.settle(t)
}

// finish lets time pass until no attempt is left to make.
func (r *run) finish(t *testing.T) {
	t.Helper()
	for next := r.settle(t); !next.IsZero(); next = r.settle(t) {
		r.db.Clock.Advance(next.Sub(r.db.Now()))
	}
}
