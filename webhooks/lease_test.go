package webhooks_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/webhooks"
)

func TestOneWebhook(t *testing.T) {
	t.Parallel()

	rule(t, "ThatHangsDelaysNoOther", func(t *testing.T, h *fixture) {
		url, arrived, release := hang(t, http.StatusOK)
		hanging := h.hook(t, url, nil)
		rec := receive(t, nil)
		working := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "a")
		take(t, arrived)
		for range 50 {
			h.emit(t, "a", "b")
		}
		h.await(t, working.ID, settled(101))
		for _, d := range h.deliveries(t, hanging.ID) {
			require.Zero(t, d.Attempts)
		}
		require.Empty(t, arrived, "the first attempt at a webhook is made alone")
		release()
		h.await(t, hanging.ID, settled(101))
	})

	rule(t, "ThatFailsGetsOneAttemptAtATimeUntilItWorks", func(t *testing.T, h *fixture) {
		type meeting struct{ answer chan int }
		meetings, over := make(chan meeting, 100), make(chan struct{})
		var open atomic.Int64
		rec := receiveAsking(t, func() int {
			open.Add(1)
			m := meeting{make(chan int)}
			meetings <- m
			select {
			case status := <-m.answer:
				return status
			case <-over:
				return http.StatusOK
			}
		})
		t.Cleanup(func() { close(over) })
		hook := h.hook(t, rec, nil)
		other := h.hook(t, receive(t, nil).URL, func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.AgentCreated} })
		h.emit(t, make([]string, 40)...)
		h.received(t, hook.ID)
		h.start(t)
		first := take(t, meetings)
		const failures = 8
		for n := range failures + 1 { // each failure is followed by one attempt, not by several
			require.NoError(t, emit(h.db.Store, events.AgentCreated, "a"))
			h.await(t, other.ID, settled(n+1)) // more attempts would have come meanwhile
			require.EqualValues(t, n+1, open.Load())
			if n < failures {
				first.answer <- http.StatusBadGateway
				first = take(t, meetings)
			}
		}
		first.answer <- http.StatusOK
		two := []meeting{take(t, meetings), take(t, meetings)} // side by side
		for _, m := range two {
			m.answer <- http.StatusOK
		}
		for range 40 - failures - 3 {
			take(t, meetings).answer <- http.StatusOK
		}
		h.await(t, hook.ID, settled(40-failures))
	})
}

func TestLease(t *testing.T) {
	t.Parallel()

	rule(t, "OfADeadReplicaIsTakenOverWhenItHasRunOut", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		hook := h.hook(t, rec.URL, nil)
		other := h.hook(t, rec.URL, func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.AgentCreated} })
		h.start(t)
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			_, ok, err := tx.Webhooks().Lease(hook.ID, "dead replica", tx.Now().Add(time.Minute))
			require.True(t, ok)
			return err
		}))
		h.emit(t, "a")
		h.received(t, hook.ID)
		for i := range 3 { // looks at what is due go by
			require.NoError(t, emit(h.db.Store, events.AgentCreated, "b"))
			h.await(t, other.ID, settled(i+1))
		}
		require.Zero(t, h.deliveries(t, hook.ID)[0].Attempts)
		h.db.Clock.Advance(time.Minute)
		d := h.await(t, hook.ID, settled(1))[0]
		require.Equal(t, 1, d.Attempts)
	})

	overlapping(t, "ThatRunsOutBesideItsOwnerCostsARepetitionAtMost", func(t *testing.T, h *fixture) {
		url, arrived, release := hang(t, http.StatusOK)
		hook := h.hook(t, url, nil)
		h.start(t)
		h.emit(t, "a", "b")
		require.Equal(t, "a", take(t, arrived).Key)
		h.db.Clock.Advance(time.Hour)
		h.replica(t, nil)
		require.Equal(t, "a", take(t, arrived).Key, "its outcome is unknown")
		release()
		all := h.await(t, hook.ID, attempted(3))
		require.Equal(t, 2, all[0].Attempts, "both are kept")
		_, attempts, err := h.Delivery(t.Context(), ops(), hook.ID, all[0].ID)
		require.NoError(t, err)
		require.Equal(t, []int{1, 2}, []int{attempts[0].Attempt, attempts[1].Attempt})
		for _, d := range all {
			require.Equal(t, models.DeliverySucceeded, d.State)
		}
	})

	overlapping(t, "IsOfOneReplicaAtATime", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		h.replica(t, nil)
		h.replica(t, nil)
		const n = 300
		for range n / 10 {
			h.emit(t, make([]string, 10)...)
		}
		h.await(t, hook.ID, settled(n))
		require.Len(t, rec.got(), n, "nothing was sent twice")
	})
}

func TestStop(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(context.Background())
	cancel()

	rule(t, "LetsARunningAttemptEndAndBeginsNothingMore", func(t *testing.T, h *fixture) {
		url, arrived, release := hang(t, http.StatusOK)
		hook := h.hook(t, url, nil)
		h.start(t)
		h.start(t) // twice is fine
		h.emit(t, "a", "b")
		take(t, arrived)
		stopped := make(chan error, 2)
		for range cap(stopped) {
			patience := &watchedContext{Context: context.Background(), waited: make(chan struct{})}
			go func() { stopped <- h.Stop(patience) }()
			take(t, patience.waited)
		}
		require.Empty(t, stopped)
		release()
		require.NoError(t, take(t, stopped))
		require.NoError(t, take(t, stopped))
		all := h.deliveries(t, hook.ID)
		require.Equal(t, models.DeliverySucceeded, all[0].State)
		require.Zero(t, all[1].Attempts)
		require.Empty(t, arrived)
		endpoints, err := h.db.Webhooks(t.Context()).DueEndpoints()
		require.NoError(t, err)
		require.Len(t, endpoints, 1)
		require.Empty(t, endpoints[0].LeaseOwner, "another replica may go on at once")
	})

	rule(t, "CutsAttemptsOffInTheEndWhichCountsAsNone", func(t *testing.T, h *fixture) {
		url, arrived, _ := hang(t, http.StatusOK)
		hook := h.hook(t, url, nil)
		h.start(t)
		h.emit(t, "a")
		take(t, arrived)
		require.NoError(t, h.Stop(ended), "everything has ended")
		d := h.deliveries(t, hook.ID)[0]
		require.Equal(t, models.DeliveryPending, d.State)
		require.Zero(t, d.Attempts)
		require.Equal(t, h.db.Now(), *d.NextAttemptAt)
		got, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.Nil(t, got.FailingSince)
	})

	rule(t, "UnderLoadLosesNothing", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		hooks := []models.Webhook{h.hook(t, rec.URL, nil), h.hook(t, rec.URL, ordered)}
		const n = 400
		for i := range n / 10 {
			h.emit(t, "a", "b", "c", "d", "e", "f", "g", "h", "i", "j")
			if i%8 == 0 { // each is stopped after a few deliveries, without patience
				before := len(rec.got())
				started := sibling(h)
				started.start(t)
				require.Eventually(t, func() bool { return len(rec.got()) > before }, time.Minute, 5*time.Millisecond)
				require.NoError(t, started.Stop(ended))
			}
		}
		h.start(t)
		got := map[string]int{}
		for _, hook := range hooks {
			for _, d := range h.await(t, hook.ID, settled(n)) {
				require.Equal(t, models.DeliverySucceeded, d.State)
				require.Equal(t, 1, d.Attempts)
			}
		}
		for _, r := range rec.got() {
			got[r.ID]++
		}
		require.Len(t, got, n)
		for _, times := range got {
			require.GreaterOrEqual(t, times, 2, "once to each webhook at least")
		}
	})

	t.Run("WithoutStartIsFine", func(t *testing.T) {
		t.Parallel()
		require.NoError(t, sqliteFixture(t).Stop(t.Context()))
	})
}
