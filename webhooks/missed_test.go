package webhooks_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store/storetest"
	"comet/webhooks"
)

// missed selects the dead deliveries and the missed events since a time.
func missed(since time.Time) webhooks.RedeliveryDraft {
	return webhooks.RedeliveryDraft{Since: &since, IncludeMissed: true}
}

// replay redelivers with missed events and returns the number of deliveries.
func (h *fixture) replay(t *testing.T, id string, d webhooks.RedeliveryDraft) int64 {
	t.Helper()
	n, err := h.RedeliverAll(t.Context(), ops(), id, d)
	require.NoError(t, err)
	return n
}

func TestRedeliverMissedEvents(t *testing.T) {
	t.Parallel()

	rule(t, "FromBeforeTheWebhook", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		other := h.hook(t, url, nil)
		h.emit(t, "too early", "bills", "bills")
		h.db.Clock.Advance(time.Hour)
		h.emit(t, "bills")
		h.db.Clock.Advance(time.Second)
		since := h.db.Now()
		h.emit(t, "bills", "health", "finance", "bills")
		require.NoError(t, emit(h.db.Store, events.AgentCreated, "bills"))
		h.db.Clock.Advance(time.Second)
		until := h.db.Now()
		h.emit(t, "bills")
		h.db.Clock.Advance(time.Hour)
		h.emit(t, "bills", "finance")
		h.received(t, other.ID)
		rec := receive(t, nil)
		hook := h.hook(t, rec.URL, func(d *webhooks.WebhookDraft) {
			d.Events, d.AgentID, d.Subtree = []models.EventType{"agent.*"}, new("finance"), new(true)
		})

		require.Zero(t, h.replay(t, hook.ID, created(since)), "without include_missed")
		require.Zero(t, h.replay(t, hook.ID, webhooks.RedeliveryDraft{Since: &since, Events: []models.EventType{"webhook.*"}, IncludeMissed: true}))
		narrow := webhooks.RedeliveryDraft{Since: &since, Until: &until, Events: []models.EventType{events.AgentUpdated}, IncludeMissed: true}
		require.EqualValues(t, 3, h.replay(t, hook.ID, narrow))
		require.Equal(t, []string{"bills", "finance", "bills"}, h.received(t, hook.ID), "in order")
		require.Zero(t, h.replay(t, hook.ID, narrow), "each event once")
		require.EqualValues(t, 4, h.replay(t, hook.ID, missed(since)))
		all := h.deliveries(t, hook.ID)
		require.Len(t, all, 7)
		require.Equal(t, []models.EventType{events.AgentCreated, events.AgentUpdated}, []models.EventType{all[3].Type, all[4].Type})

		h.start(t)
		h.await(t, hook.ID, settled(7))
		require.Len(t, rec.got(), 7)
		h.emit(t, "bills")
		require.Len(t, h.received(t, hook.ID), 8)
		require.Zero(t, h.replay(t, hook.ID, missed(since)), "those that the relay created are not missed")
	})

	rule(t, "FromOtherFiltersAndWhileDisabled", func(t *testing.T, h *fixture) {
		since := h.db.Now()
		hook := h.hook(t, url, func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.AgentCreated} })
		update := func(p webhooks.WebhookPatch) {
			t.Helper()
			_, err := h.Update(t.Context(), ops(), hook.ID, p, nil)
			require.NoError(t, err)
		}
		h.emit(t, "filtered")
		h.received(t, hook.ID)
		require.Zero(t, h.replay(t, hook.ID, missed(since)), "the filters of the webhook apply")
		update(webhooks.WebhookPatch{Events: models.Some([]models.EventType{"agent.*"}), Enabled: models.Some(false)})
		h.emit(t, "disabled")
		h.received(t, hook.ID)
		_, err := h.RedeliverAll(t.Context(), ops(), hook.ID, missed(since))
		require.Equal(t, errs.WebhookDisabled, errs.CodeOf(err))
		update(webhooks.WebhookPatch{Enabled: models.Some(true)})
		require.EqualValues(t, 2, h.replay(t, hook.ID, missed(since)))
		require.Equal(t, []string{"filtered", "disabled"}, h.received(t, hook.ID))
	})

	rule(t, "BeforeLaterOnesOfTheirAgent", func(t *testing.T, h *fixture) {
		since := h.db.Now()
		other := h.hook(t, url, nil)
		h.emit(t, "a", "b", "a")
		h.received(t, other.ID)
		rec := receive(t, nil)
		hook := h.hook(t, rec.URL, ordered)
		h.emit(t, "a", "c")
		require.Len(t, h.received(t, hook.ID), 2)
		require.EqualValues(t, 3, h.replay(t, hook.ID, missed(since)))
		due := map[string]bool{}
		for _, d := range h.deliveries(t, hook.ID) {
			if d.NextAttemptAt != nil {
				require.False(t, due[d.Key], "one delivery of an agent at a time")
				due[d.Key] = true
			}
		}
		require.Len(t, due, 3)
		h.start(t)
		h.await(t, hook.ID, settled(5))
		var sent []string
		for _, r := range rec.got() {
			if r.Key == "a" {
				sent = append(sent, r.ID)
			}
		}
		var want []string
		all, err := h.db.Events(t.Context()).After(0, 100)
		require.NoError(t, err)
		for _, e := range all {
			if e.Key == "a" {
				want = append(want, e.ID)
			}
		}
		require.Equal(t, want, sent, "in the order of the events")
	})

	rule(t, "InManyTransactions", func(t *testing.T, h *fixture) {
		const n = 2100
		other, since := h.hook(t, url, nil), h.db.Now()
		keys := make([]string, n)
		for i := range keys {
			keys[i] = strconv.Itoa(i)
		}
		h.emit(t, keys...)
		h.received(t, other.ID)
		hook := h.hook(t, url, nil)
		var counts [3]int64
		var failures [3]error
		var wg sync.WaitGroup
		for i := range counts {
			wg.Go(func() {
				counts[i], failures[i] = h.RedeliverAll(context.Background(), ops(), hook.ID, missed(since))
			})
		}
		wg.Wait()
		require.NoError(t, errors.Join(failures[:]...))
		require.EqualValues(t, n, counts[0]+counts[1]+counts[2], "concurrent requests deliver each event once")
		var got []int
		for _, key := range h.received(t, hook.ID) {
			i, err := strconv.Atoi(key)
			require.NoError(t, err)
			got = append(got, i)
		}
		require.True(t, slices.IsSorted(got))
		require.Len(t, got, n)
	})

	rule(t, "WithinTheRetentionOfDeliveries", func(t *testing.T, h *fixture) {
		since, hook := h.db.Now(), h.hook(t, receive(t, always(http.StatusOK)).URL, nil)
		h.start(t)
		h.emit(t, "old")
		h.await(t, hook.ID, settled(1))
		h.db.Clock.Advance(30*24*time.Hour + time.Microsecond)
		require.NoError(t, h.Purge(t.Context()))
		require.Empty(t, h.deliveries(t, hook.ID))
		require.Zero(t, h.replay(t, hook.ID, missed(since)), "the purged delivery was made")
	})
}

// TestRedeliverMissedEventsLeavesTheRelayItsEvents checks that events that the relay has not
// handled yet are left to the relay.
func TestRedeliverMissedEventsLeavesTheRelayItsEvents(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := &fixture{webhooks.New(db.Store, options()), db}
		since, hook := db.Now(), h.hook(t, url, nil)
		h.emit(t, "a", "b")
		require.Zero(t, h.replay(t, hook.ID, missed(since)))
		require.Empty(t, h.deliveries(t, hook.ID))
		opts := &events.Options{Poll: time.Hour, Deliveries: h}
		relay := events.NewRelay(db.Store, events.NewFeed(db.Store, opts), opts)
		require.NoError(t, relay.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, relay.Stop(context.Background())) })
		require.Equal(t, []string{"a", "b"}, h.received(t, hook.ID))
		require.Zero(t, h.replay(t, hook.ID, missed(since)))
		require.Len(t, h.deliveries(t, hook.ID), 2)
	})
}
