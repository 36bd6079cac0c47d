package webhooks_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/webhooks"
)

// requireOrder looks at what a receiver got in the order of its arrival: no event may
// come for the first time before every earlier one of its key has succeeded, or died.
func requireOrder(t *testing.T, h *fixture, hookID string, log []request) {
	t.Helper()
	all, err := h.db.Events(t.Context()).After(0, 1_000_000)
	require.NoError(t, err)
	line := map[string][]string{} // the ids of each key's events, in order
	all = slices.DeleteFunc(all, func(e models.Event) bool { return e.Type == events.DeliveryDead })
	for _, e := range all {
		line[e.Key] = append(line[e.Key], e.ID)
	}
	dead := map[string]bool{}
	for _, d := range h.deliveries(t, hookID) {
		dead[d.EventID] = d.State == models.DeliveryDead
	}
	done, seen := map[string]bool{}, map[string]bool{}
	for _, r := range log {
		if !seen[r.ID] {
			for _, earlier := range line[r.Key] {
				if earlier == r.ID {
					break
				}
				require.True(t, done[earlier] || dead[earlier], "an event of %s came before an earlier one had ended", r.Key)
			}
		}
		seen[r.ID] = true
		done[r.ID] = done[r.ID] || r.Status == http.StatusOK
	}
	require.Len(t, seen, len(all), "every event came")
}

// storm has writers commit events of few keys while a receiver fails at random and
// time passes, until every delivery has ended.
func storm(t *testing.T, h *fixture, hook models.Webhook, step time.Duration) {
	t.Helper()
	const writers, rounds, keys = 4, 25, 5
	var left atomic.Int64
	left.Store(writers)
	failures := make([]error, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			defer left.Add(-1)
			for range rounds {
				failures[w] = errors.Join(failures[w], emit(h.db.Store, events.AgentUpdated, fmt.Sprint("agent-", rand.IntN(keys))))
			}
		})
	}
	require.Eventually(t, func() bool {
		h.db.Clock.Advance(step)
		return left.Load() == 0 && settled(writers*rounds)(h.deliveries(t, hook.ID))
	}, 2*time.Minute, 5*time.Millisecond)
	wg.Wait()
	require.NoError(t, errors.Join(failures...))
}

// flaky answers three of ten requests with an error.
func flaky(request, http.Header) int {
	if rand.IntN(10) < 3 {
		return http.StatusInternalServerError
	}
	return http.StatusOK
}

func TestOrderingByAgent(t *testing.T) {
	t.Parallel()

	rule(t, "HoldsWhateverFails", func(t *testing.T, h *fixture) {
		rec := receive(t, flaky)
		hook := h.hook(t, rec.URL, ordered)
		h.start(t)
		storm(t, h, hook, time.Minute)
		requireOrder(t, h, hook.ID, rec.got())
	})

	overlapping(t, "HoldsAlthoughLeasesRunOutAllTheTime", func(t *testing.T, h *fixture) {
		rec := receive(t, flaky)
		hook := h.hook(t, rec.URL, ordered)
		h.start(t)
		h.replica(t, nil)
		storm(t, h, hook, 30*time.Second)
		requireOrder(t, h, hook.ID, rec.got())
	})

	rule(t, "IsHoldBackOnlyByItsOwnKey", func(t *testing.T, h *fixture) {
		rec := receive(t, func(r request, _ http.Header) int {
			if r.Key == "stuck" {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		})
		hook := h.hook(t, rec.URL, ordered)
		h.start(t)
		h.emit(t, "stuck", "a", "stuck", "b", "a")
		all := h.await(t, hook.ID, settled(3))
		require.Nil(t, all[2].NextAttemptAt, "it waits behind the first of its key")
		require.Equal(t, models.DeliveryPending, all[2].State)
		require.Equal(t, h.db.Now().Add(5*time.Second), *all[0].NextAttemptAt)
	})

	rule(t, "GoesOnBehindADeadOne", func(t *testing.T, h *fixture) {
		var first atomic.Value
		rec := receive(t, func(r request, _ http.Header) int {
			first.CompareAndSwap(nil, r.ID)
			if r.ID == first.Load() {
				return http.StatusInternalServerError
			}
			return http.StatusOK
		})
		hook := h.hook(t, rec.URL, ordered)
		h.start(t)
		h.emit(t, "a", "a", "a")
		for i, wait := range webhooks.Schedule() {
			all := h.await(t, hook.ID, attempted(i+1))
			require.Zero(t, all[1].Attempts)
			h.db.Clock.Advance(wait)
		}
		all := h.await(t, hook.ID, settled(3))
		require.Equal(t, models.DeliveryDead, all[0].State)
		requireOrder(t, h, hook.ID, rec.got())

		_, err := h.Redeliver(t.Context(), ops(), hook.ID, all[0].ID)
		require.NoError(t, err)
		h.await(t, hook.ID, func(all []models.Delivery) bool { return all[0].Attempts == 9 })
	})

	rule(t, "PutsARedeliveredOneInFrontOfWhatIsUnfinished", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		hook := h.hook(t, rec.URL, ordered)
		h.start(t)
		h.emit(t, "a")
		first := h.await(t, hook.ID, settled(1))[0]
		require.NoError(t, h.Stop(t.Context()))
		h.emit(t, "a", "a")
		all := h.await(t, hook.ID, func(all []models.Delivery) bool { return len(all) == 3 })
		require.NotNil(t, all[1].NextAttemptAt)
		again, err := h.Redeliver(t.Context(), ops(), hook.ID, first.ID)
		require.NoError(t, err)
		require.Equal(t, h.db.Now(), *again.NextAttemptAt)
		require.Zero(t, again.Tries)
		require.Equal(t, 1, again.Attempts)
		for _, d := range h.deliveries(t, hook.ID)[1:] {
			require.Nil(t, d.NextAttemptAt, "they are behind it")
		}
		waiting, err := h.Redeliver(t.Context(), ops(), hook.ID, all[2].ID)
		require.NoError(t, err)
		require.Nil(t, waiting.NextAttemptAt, "one that waits keeps waiting")
		other := &fixture{webhooks.New(h.db.Store, options()), h.db}
		other.start(t)
		t.Cleanup(func() { require.NoError(t, other.Stop(t.Context())) })
		h.await(t, hook.ID, settled(3))
		got := rec.got()
		require.Equal(t, []string{first.EventID, all[1].EventID, all[2].EventID}, []string{got[1].ID, got[2].ID, got[3].ID})
	})
}

func TestAnotherOrdering(t *testing.T) {
	t.Parallel()
	patch := func(t *testing.T, h *fixture, id string, o models.Ordering) {
		t.Helper()
		_, err := h.Update(t.Context(), ops(), id, webhooks.WebhookPatch{Ordering: models.Some(o)}, nil)
		require.NoError(t, err)
	}
	ready := func(all []models.Delivery) (out []bool) {
		for _, d := range all {
			out = append(out, d.NextAttemptAt != nil)
		}
		return out
	}

	rule(t, "PutsWhatIsUnfinishedInLineAndOutOfItAgain", func(t *testing.T, h *fixture) {
		hook := h.hook(t, "https://example.com/in", nil)
		h.emit(t, "a", "b", "a", "a", "b", "c")
		h.received(t, hook.ID)
		patch(t, h, hook.ID, models.OrderingAgent)
		require.Equal(t, []bool{true, true, false, false, false, true}, ready(h.deliveries(t, hook.ID)))
		h.emit(t, "a", "d")
		h.received(t, hook.ID)
		require.Equal(t, []bool{true, true, false, false, false, true, false, true}, ready(h.deliveries(t, hook.ID)))
		patch(t, h, hook.ID, models.OrderingNone)
		require.NotContains(t, ready(h.deliveries(t, hook.ID)), false)
		h.emit(t, "a")
		h.received(t, hook.ID)
		require.NotContains(t, ready(h.deliveries(t, hook.ID)), false)
		patch(t, h, hook.ID, models.OrderingAgent)
		require.Equal(t, []bool{true, true, false, false, false, true, false, true, false}, ready(h.deliveries(t, hook.ID)))
	})

	rule(t, "CountsWhatIsInFlight", func(t *testing.T, h *fixture) {
		gate, arrived := make(chan struct{}), make(chan request, 10)
		var once sync.Once
		open := func() { once.Do(func() { close(gate) }) }
		rec := receiveBlocking(t, func(r request) {
			if r.Key == "a" {
				arrived <- r
				<-gate
			}
		})
		t.Cleanup(open)
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "b", "b", "b", "b", "a", "a") // the first ones prove that it works
		take(t, arrived)
		take(t, arrived)
		patch(t, h, hook.ID, models.OrderingAgent)
		h.emit(t, "a", "a")
		h.received(t, hook.ID)
		require.Equal(t, []bool{true, false, false, false}, ready(h.deliveries(t, hook.ID)[4:]))
		require.Empty(t, arrived)
		open()
		all := h.await(t, hook.ID, settled(8))
		for _, d := range all {
			require.Equal(t, models.DeliverySucceeded, d.State)
			require.Equal(t, 1, d.Attempts, "nothing was sent twice")
		}
		require.Equal(t, []string{all[6].EventID, all[7].EventID}, []string{take(t, arrived).ID, take(t, arrived).ID})
	})

	rule(t, "LosesNothingWhileEventsComeAndFailuresToo", func(t *testing.T, h *fixture) {
		rec := receive(t, flaky)
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var failure error
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				o := []models.Ordering{models.OrderingAgent, models.OrderingNone}[i%2]
				if _, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{Ordering: models.Some(o)}, nil); err != nil {
					failure = err
					return
				}
			}
		})
		storm(t, h, hook, time.Minute)
		close(stop)
		wg.Wait()
		require.NoError(t, failure)
		for _, d := range h.deliveries(t, hook.ID) {
			require.NotEqual(t, models.DeliveryPending, d.State)
		}
	})
}
