package webhooks_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/webhooks"
)

// bury makes every retry of the pending deliveries fail.
func (h *fixture) bury(t *testing.T, id string) {
	t.Helper()
	n := len(h.deliveries(t, id))
	for i, wait := range webhooks.Schedule() {
		h.await(t, id, attempted((i+1)*n))
		h.db.Clock.Advance(wait)
	}
	h.await(t, id, settled(n))
}

func TestRedeliver(t *testing.T) {
	t.Parallel()

	rule(t, "StartsOverAndKeepsTheHistory", func(t *testing.T, h *fixture) {
		var status atomic.Int64
		status.Store(http.StatusInternalServerError)
		rec := receive(t, func(request, http.Header) int { return int(status.Load()) })
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "a")
		h.await(t, hook.ID, attempted(1))
		h.bury(t, hook.ID)
		dead := h.deliveries(t, hook.ID)[0]
		again, err := h.Redeliver(t.Context(), ops(), hook.ID, dead.ID)
		require.NoError(t, err)
		require.Equal(t, models.DeliveryPending, again.State)
		require.Equal(t, h.db.Now(), *again.NextAttemptAt)
		require.Equal(t, 8, again.Attempts)
		d := h.await(t, hook.ID, attempted(9))[0]
		require.Equal(t, 1, d.Tries)
		require.Equal(t, h.db.Now().Add(5*time.Second), *d.NextAttemptAt, "all the retries lie before it")
		status.Store(http.StatusOK)
		_, err = h.Redeliver(t.Context(), ops(), hook.ID, d.ID)
		require.NoError(t, err, "of a pending one")
		d = h.await(t, hook.ID, settled(1))[0]
		require.Equal(t, models.DeliverySucceeded, d.State)
		_, err = h.Redeliver(t.Context(), ops(), hook.ID, d.ID)
		require.NoError(t, err, "of one that succeeded")
		h.await(t, hook.ID, attempted(11))
		_, attempts, err := h.Delivery(t.Context(), ops(), hook.ID, d.ID)
		require.NoError(t, err)
		require.Len(t, attempts, 11)
		for i, a := range attempts {
			require.Equal(t, i+1, a.Attempt)
			if i < 9 {
				require.Equal(t, http.StatusInternalServerError, a.Status)
			} else {
				require.Equal(t, http.StatusOK, a.Status)
			}
		}
	})

	for _, ordering := range []models.Ordering{models.OrderingNone, models.OrderingAgent} {
		rule(t, "OfAllThatDiedSinceATime/"+string(ordering), func(t *testing.T, h *fixture) {
			var status atomic.Int64
			status.Store(http.StatusInternalServerError)
			rec := receive(t, func(request, http.Header) int { return int(status.Load()) })
			hook := h.hook(t, rec.URL, func(d *webhooks.WebhookDraft) { d.Ordering = &ordering })
			h.start(t)
			h.emit(t, "a", "b")
			h.await(t, hook.ID, attempted(2))
			h.bury(t, hook.ID)
			since := h.db.Now()
			h.emit(t, "a", "b", "c")
			if ordering == models.OrderingNone {
				h.await(t, hook.ID, attempted(19))
			}
			h.await(t, hook.ID, func(all []models.Delivery) bool { return len(all) == 5 })
			for range 40 {
				h.db.Clock.Advance(10 * time.Hour)
				h.await(t, hook.ID, func(all []models.Delivery) bool {
					for _, d := range all {
						if d.NextAttemptAt != nil && !d.NextAttemptAt.After(h.db.Now()) {
							got, err := h.Get(t.Context(), ops(), hook.ID)
							require.NoError(t, err)
							return !got.Enabled
						}
					}
					return true
				})
				got, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{Enabled: models.Some(true)}, nil)
				require.NoError(t, err)
				require.True(t, got.Enabled)
			}
			h.await(t, hook.ID, settled(5))
			n, err := h.RedeliverAll(t.Context(), ops(), hook.ID, created(since.Add(time.Hour)))
			require.NoError(t, err)
			require.Zero(t, n)
			status.Store(http.StatusOK)
			sent := len(rec.got())
			n, err = h.RedeliverAll(t.Context(), ops(), hook.ID, created(since))
			require.NoError(t, err)
			require.EqualValues(t, 3, n)
			all := h.await(t, hook.ID, func(all []models.Delivery) bool {
				return all[2].State == models.DeliverySucceeded && all[3].State == models.DeliverySucceeded && all[4].State == models.DeliverySucceeded
			})
			require.Equal(t, models.DeliveryDead, all[0].State)
			require.Equal(t, models.DeliveryDead, all[1].State)
			require.Len(t, rec.got(), sent+3)
			n, err = h.RedeliverAll(t.Context(), ops(), hook.ID, created(time.Time{}))
			require.NoError(t, err)
			require.EqualValues(t, 2, n)
			h.await(t, hook.ID, func(all []models.Delivery) bool {
				return all[0].State == models.DeliverySucceeded && all[1].State == models.DeliverySucceeded
			})
			status.Store(http.StatusInternalServerError)
			_, _, err = h.Test(t.Context(), ops(), hook.ID)
			require.NoError(t, err)
			n, err = h.RedeliverAll(t.Context(), ops(), hook.ID, created(time.Time{}))
			require.NoError(t, err)
			require.Zero(t, n, "a test that failed is not what was missed")
		})
	}

	rule(t, "SaysWhatIsNotThere", func(t *testing.T, h *fixture) {
		hook, other := h.hook(t, url, nil), h.hook(t, url, nil)
		h.emit(t, "a")
		h.received(t, other.ID)
		foreign := h.deliveries(t, other.ID)[0].ID
		for _, c := range []struct{ hook, delivery, says string }{
			{"no-such-agent", foreign, `there is no webhook "no-such-agent"`},
			{hook.ID, "nothing", `the webhook "` + hook.ID + `" has no delivery "nothing"`},
			{hook.ID, foreign, `has no delivery "` + foreign + `"`},
		} {
			_, err := h.Redeliver(t.Context(), ops(), c.hook, c.delivery)
			require.Equal(t, errs.NotFound, errs.CodeOf(err))
			require.Contains(t, err.Error(), c.says)
			_, _, err = h.Delivery(t.Context(), ops(), c.hook, c.delivery)
			require.Equal(t, errs.NotFound, errs.CodeOf(err))
			require.Contains(t, err.Error(), c.says)
		}
		_, err := h.RedeliverAll(t.Context(), ops(), "no-such-agent", created(time.Time{}))
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
	})
}

func TestPing(t *testing.T) {
	t.Parallel()

	rule(t, "IsOneAttemptThatIsKeptWithItsEnd", func(t *testing.T, h *fixture) {
		for status, state := range map[int]models.DeliveryState{200: models.DeliverySucceeded, 410: models.DeliveryDead, 500: models.DeliveryDead} {
			rec := receive(t, always(status))
			hook := h.hook(t, rec.URL, func(d *webhooks.WebhookDraft) { d.Enabled = new(false) })
			tested, attempt, err := h.Test(t.Context(), ops(), hook.ID)
			require.NoError(t, err)
			require.Equal(t, state, tested.State)
			require.Equal(t, status, attempt.Status)
			require.Equal(t, 1, attempt.Attempt)
			got := rec.got()
			require.Equal(t, []request{{ID: tested.EventID, Type: "webhook.test", Status: status}}, got)
			kept, attempts, err := h.Delivery(t.Context(), ops(), hook.ID, tested.ID)
			require.NoError(t, err)
			require.Equal(t, tested, kept)
			require.Equal(t, []models.DeliveryAttempt{attempt}, attempts)
			require.Contains(t, string(kept.Data), hook.ID)
			after, err := h.Get(t.Context(), ops(), hook.ID)
			require.NoError(t, err)
			require.Equal(t, hook, after, "nothing else follows")
			_, err = uuid.Parse(tested.EventID)
			require.NoError(t, err)
		}
	})

	rule(t, "IsStoredAfterItsCallerHasGone", func(t *testing.T, h *fixture) {
		url, arrived, release := hang(t, http.StatusOK)
		hook := h.hook(t, url, nil)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, _, err := h.Test(ctx, ops(), hook.ID)
			ended <- err
		}()
		take(t, arrived)
		cancel()
		require.NoError(t, take(t, ended))
		release()
		all := h.deliveries(t, hook.ID)
		require.Len(t, all, 1)
		require.Equal(t, models.DeliveryDead, all[0].State)
	})

	rule(t, "SaysThatThereIsNoSuchWebhook", func(t *testing.T, h *fixture) {
		_, _, err := h.Test(t.Context(), ops(), "no-such-agent")
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
	})
}

func TestPurge(t *testing.T) {
	t.Parallel()
	rule(t, "DeletesWhatEndedLongAgo", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		hook := h.hook(t, rec.URL, nil)
		waiting := h.hook(t, rec.URL, func(d *webhooks.WebhookDraft) { d.Enabled = new(true) })
		h.emit(t, make([]string, 1100)...)
		h.received(t, waiting.ID)
		_, err := h.Update(t.Context(), ops(), waiting.ID, webhooks.WebhookPatch{Enabled: models.Some(false)}, nil)
		require.NoError(t, err)
		h.start(t)
		h.await(t, hook.ID, settled(1100))
		h.db.Clock.Advance(30 * 24 * time.Hour)
		h.emit(t, "young")
		all := h.await(t, hook.ID, settled(1101))
		again := all[0]
		_, err = h.Redeliver(t.Context(), ops(), hook.ID, again.ID)
		require.NoError(t, err)
		h.await(t, hook.ID, attempted(1102))
		require.NoError(t, h.Purge(t.Context()))
		require.Len(t, h.deliveries(t, hook.ID), 1101, "not older than the retention yet")
		h.db.Clock.Advance(time.Microsecond)
		require.NoError(t, h.Purge(t.Context()))
		left := h.deliveries(t, hook.ID)
		require.Len(t, left, 2)
		require.Equal(t, again.ID, left[0].ID, "it ended lately")
		require.Equal(t, "young", left[1].Key)
		require.Len(t, h.deliveries(t, waiting.ID), 1100, "what is pending stays")
		_, attempts, err := h.Delivery(t.Context(), ops(), hook.ID, again.ID)
		require.NoError(t, err)
		require.Len(t, attempts, 2)
	})
}

// TestRedeliverPeriod delivers what a receiver lost again.
func TestRedeliverPeriod(t *testing.T) {
	t.Parallel()
	for _, ordering := range []models.Ordering{models.OrderingNone, models.OrderingAgent} {
		rule(t, "/"+string(ordering), func(t *testing.T, h *fixture) {
			rec := receive(t, func(request, http.Header) int { return http.StatusOK })
			hook := h.hook(t, rec.URL, func(d *webhooks.WebhookDraft) {
				d.Ordering, d.Events = &ordering, []models.EventType{"*"}
			})
			h.start(t)
			h.emit(t, "a", "b")
			h.await(t, hook.ID, settled(2))
			h.db.Clock.Advance(time.Hour)
			since := h.db.Now()
			h.emit(t, "a", "b")
			require.NoError(t, emit(h.db.Store, events.AgentCreated, "c"))
			h.await(t, hook.ID, settled(5))
			h.db.Clock.Advance(time.Hour)
			until := h.db.Now()
			h.emit(t, "a")
			h.await(t, hook.ID, settled(6))

			redeliver := func(d webhooks.RedeliveryDraft) int64 {
				t.Helper()
				h.db.Clock.Advance(time.Second)
				n, err := h.RedeliverAll(t.Context(), ops(), hook.ID, d)
				require.NoError(t, err)
				h.await(t, hook.ID, settled(6))
				return n
			}
			sent := func() int { return len(rec.got()) }
			require.Zero(t, redeliver(created(since)), "none is dead")
			before := sent()
			require.EqualValues(t, 3, redeliver(webhooks.RedeliveryDraft{Since: &since, Until: &until, IncludeSucceeded: true}))
			require.Equal(t, before+3, sent())
			require.EqualValues(t, 1, redeliver(webhooks.RedeliveryDraft{Since: &since, Events: []models.EventType{events.AgentCreated}, IncludeSucceeded: true}))
			require.EqualValues(t, 4, redeliver(webhooks.RedeliveryDraft{Since: &since, Events: []models.EventType{"agent.*"}, IncludeSucceeded: true}))
			require.Zero(t, redeliver(webhooks.RedeliveryDraft{Since: &since, Events: []models.EventType{"webhook.*"}, IncludeSucceeded: true}))
			require.Equal(t, before+8, sent())

			for at, d := range map[string]webhooks.RedeliveryDraft{
				"/until":    {Since: &until, Until: &until},
				"/events/0": {Since: &since, Events: []models.EventType{"agent.craeted"}},
			} {
				_, err := h.RedeliverAll(t.Context(), ops(), hook.ID, d)
				require.True(t, errs.Is(err, errs.InvalidRequest), "%v", err)
				require.Equal(t, at, errs.From(err).Fields[0].Pointer)
			}
		})
	}
}

// created selects the dead deliveries that were created at a time or later.
func created(since time.Time) webhooks.RedeliveryDraft {
	return webhooks.RedeliveryDraft{Since: &since}
}
