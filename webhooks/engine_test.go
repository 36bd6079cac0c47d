package webhooks_test

import (
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/webhooks"
)

func TestDelivery(t *testing.T) {
	t.Parallel()

	rule(t, "ReachesTheReceiverOnceAndIsKept", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "a", "b")
		all := h.await(t, hook.ID, settled(2))
		require.Len(t, all, 2)
		got := rec.got()
		require.Len(t, got, 2)
		for i, d := range all {
			require.Equal(t, models.DeliverySucceeded, d.State)
			require.Equal(t, got[i].ID, d.EventID)
			require.Equal(t, []string{"a", "b"}[i], d.Key)
			require.Equal(t, h.db.Now(), *d.EndedAt)
			require.Nil(t, d.NextAttemptAt)
			full, attempts, err := h.Delivery(t.Context(), ops(), hook.ID, d.ID)
			require.NoError(t, err)
			require.JSONEq(t, `{"id": "`+d.Key+`", "n": `+[]string{"0", "1"}[i]+`}`, string(full.Data))
			require.Equal(t, []models.DeliveryAttempt{{Attempt: 1, At: h.db.Now(), Status: 200, DurationMS: attempts[0].DurationMS}}, attempts)
		}
	})

	rule(t, "OfManyEventsIsCompleteWithoutRepetition", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		const n = 2000
		for range n / 100 {
			h.emit(t, make([]string, 100)...)
		}
		all := h.await(t, hook.ID, settled(n))
		require.Len(t, all, n)
		ids := map[string]int{}
		for _, r := range rec.got() {
			ids[r.ID]++
		}
		require.Len(t, ids, n)
		require.Len(t, rec.got(), n, "none was sent twice")
	})

	rule(t, "IsTriedAgainByTheSchedule", func(t *testing.T, h *fixture) {
		rec := receive(t, always(http.StatusServiceUnavailable))
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "a")
		begun := h.db.Now()
		schedule := []time.Duration{
			5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 10 * time.Hour,
		}
		for i, wait := range schedule {
			all := h.await(t, hook.ID, attempted(i+1))
			require.Equal(t, models.DeliveryPending, all[0].State)
			require.Equal(t, h.db.Now().Add(wait), *all[0].NextAttemptAt)
			hook, err := h.Get(t.Context(), ops(), hook.ID)
			require.NoError(t, err)
			require.Equal(t, begun, *hook.FailingSince)
			h.db.Clock.Advance(wait)
		}
		d := h.await(t, hook.ID, settled(1))[0]
		require.Equal(t, models.DeliveryDead, d.State)
		require.Equal(t, 8, d.Attempts)
		require.Len(t, rec.got(), 8)
		for _, r := range rec.got() {
			require.Equal(t, d.EventID, r.ID, "the webhook-id stays")
		}
		_, attempts, err := h.Delivery(t.Context(), ops(), hook.ID, d.ID)
		require.NoError(t, err)
		for i, a := range attempts {
			require.Equal(t, i+1, a.Attempt)
			require.Equal(t, 503, a.Status)
			require.Equal(t, "the server answered 503 Service Unavailable", a.Error)
		}
	})

	rule(t, "SucceedsWhenTheReceiverIsBackAfterAnHour", func(t *testing.T, h *fixture) {
		up := h.db.Now().Add(time.Hour)
		rec := receive(t, func(request, http.Header) int {
			if h.db.Now().Before(up) {
				return 500
			}
			return 204
		})
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "a", "b", "c")
		for range 3 {
			before := len(rec.got())
			require.Eventually(t, func() bool { return len(rec.got()) >= before }, time.Minute, 5*time.Millisecond)
			h.await(t, hook.ID, func(all []models.Delivery) bool {
				for _, d := range all {
					if d.State == models.DeliveryPending && !d.NextAttemptAt.After(h.db.Now()) {
						return false
					}
				}
				return len(all) == 3
			})
			h.db.Clock.Advance(45 * time.Minute)
		}
		for _, d := range h.await(t, hook.ID, settled(3)) {
			require.Equal(t, models.DeliverySucceeded, d.State)
		}
		hook, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.Nil(t, hook.FailingSince, "it works again")
		require.True(t, hook.Enabled)
	})

	rule(t, "WaitsForAsLongAsTheReceiverAsksButNotShorter", func(t *testing.T, h *fixture) {
		for ask, want := range map[string]time.Duration{"3": 5 * time.Second, "90": 90 * time.Second, "999999999": 24 * time.Hour} {
			rec := receive(t, func(_ request, header http.Header) int {
				header.Set("Retry-After", ask)
				return http.StatusTooManyRequests
			})
			hook := h.hook(t, rec.URL, nil)
			h.start(t)
			h.emit(t, "a")
			d := h.await(t, hook.ID, attempted(1))[0]
			require.Equal(t, h.db.Now().Add(want), *d.NextAttemptAt, "Retry-After: %s", ask)
			require.NoError(t, h.Webhooks.Delete(t.Context(), ops(), hook.ID, nil))
		}
	})

	rule(t, "OfARedirectFails", func(t *testing.T, h *fixture) {
		rec := receive(t, func(_ request, header http.Header) int {
			header.Set("Location", "/elsewhere")
			return http.StatusFound
		})
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "a")
		d := h.await(t, hook.ID, attempted(1))[0]
		require.Equal(t, models.DeliveryPending, d.State)
		require.Len(t, rec.got(), 1)
	})
}

// TestJitter: retries of what failed together spread by a tenth to either side.
func TestJitter(t *testing.T) {
	t.Parallel()
	for _, random := range []float64{0, 0.25, 0.999999, rand.Float64()} {
		for i, wait := range webhooks.Schedule() {
			got, ok := webhooks.Next(i+1, random, 0)
			require.True(t, ok)
			require.InDelta(t, float64(wait)*(0.9+0.2*random), float64(got), 1000)
			require.LessOrEqual(t, got, wait+wait/10)
			require.GreaterOrEqual(t, got, wait-wait/10)
		}
	}
	_, ok := webhooks.Next(8, 0.5, time.Hour)
	require.False(t, ok, "the eighth attempt is the last")
}

func TestDisabling(t *testing.T) {
	t.Parallel()

	rule(t, "FollowsA410AtOnce", func(t *testing.T, h *fixture) {
		rec := receive(t, always(http.StatusGone))
		hook := h.hook(t, rec.URL+"/secret?key=secret", func(d *webhooks.WebhookDraft) { d.Description = "whose" })
		watcher := receive(t, nil)
		watching := h.hook(t, watcher.URL, func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.WebhookDisabled} })
		h.emit(t, "a", "b", "c")
		h.await(t, hook.ID, func(all []models.Delivery) bool { return len(all) == 3 })
		h.start(t)
		all := h.await(t, hook.ID, settled(1))
		require.Equal(t, models.DeliveryDead, all[0].State)
		gone, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.False(t, gone.Enabled)
		require.Equal(t, "the server answered 410 Gone", gone.DisabledReason)
		require.Equal(t, h.db.Now(), *gone.DisabledAt)

		told := h.await(t, watching.ID, settled(1))
		full, _, err := h.Delivery(t.Context(), ops(), watching.ID, told[0].ID)
		require.NoError(t, err)
		require.Equal(t, hook.ID, full.Key)
		require.JSONEq(t, `{"id": "`+hook.ID+`", "origin": "`+rec.URL+`", "description": "whose", "agent_id": null, "reason": "the server answered 410 Gone", "failing_since": null}`, string(full.Data))
		require.Len(t, watcher.got(), 1, "it receives the event once")
		require.Len(t, rec.got(), 1, "a first attempt is made alone, and nothing follows it")

		h.emit(t, "d")
		_, err = h.Redeliver(t.Context(), ops(), hook.ID, all[0].ID)
		require.Equal(t, errs.WebhookDisabled, errs.CodeOf(err))
		_, err = h.RedeliverAll(t.Context(), ops(), hook.ID, created(time.Time{}))
		require.Equal(t, errs.WebhookDisabled, errs.CodeOf(err))
	})

	rule(t, "FollowsFiveDaysOfFailure", func(t *testing.T, h *fixture) {
		rec := receive(t, always(http.StatusInternalServerError))
		hook := h.hook(t, rec.URL, nil)
		watcher := receive(t, nil)
		watching := h.hook(t, watcher.URL, func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.WebhookDisabled} })
		h.start(t)
		h.emit(t, make([]string, 10)...)
		since := h.db.Now()
		h.await(t, hook.ID, attempted(10))
		h.db.Clock.Advance(5*24*time.Hour - time.Second)
		h.emit(t, "b")
		h.await(t, hook.ID, attempted(21))
		got, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.True(t, got.Enabled, "not yet")
		require.Equal(t, since, *got.FailingSince)
		h.db.Clock.Advance(time.Second)
		h.emit(t, "c")
		told := h.await(t, watching.ID, settled(1))
		got, err = h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.False(t, got.Enabled)
		require.Equal(t, "no delivery succeeded for 5 days", got.DisabledReason)
		full, _, err := h.Delivery(t.Context(), ops(), watching.ID, told[0].ID)
		require.NoError(t, err)
		require.Contains(t, string(full.Data), since.Format(time.RFC3339))
		for _, d := range h.deliveries(t, hook.ID) {
			require.Equal(t, models.DeliveryPending, d.State, "what is pending stays so")
		}
	})

	rule(t, "IsUndoneByEnablingAndWhatWasPendingGoesOn", func(t *testing.T, h *fixture) {
		status := make(chan int, 1)
		status <- http.StatusGone
		rec := receive(t, func(request, http.Header) int {
			select {
			case s := <-status:
				return s
			default:
				return 200
			}
		})
		hook := h.hook(t, rec.URL, nil)
		h.emit(t, "a", "b")
		h.await(t, hook.ID, func(all []models.Delivery) bool { return len(all) == 2 })
		h.start(t)
		h.await(t, hook.ID, settled(1))
		h.emit(t, "missed")
		other := h.hook(t, rec.URL, nil)
		h.emit(t, "last")
		h.await(t, other.ID, settled(1), "the relay has passed them")
		got, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{Enabled: models.Some(true)}, nil)
		require.NoError(t, err)
		require.True(t, got.Enabled)
		require.Empty(t, got.DisabledReason)
		require.Nil(t, got.DisabledAt)
		require.Nil(t, got.FailingSince)
		h.emit(t, "c")
		all := h.await(t, hook.ID, settled(3))
		require.Len(t, all, 3)
		require.Equal(t, []string{"a", "b", "c"}, []string{all[0].Key, all[1].Key, all[2].Key}, "it receives nothing while it is disabled")
		require.Equal(t, models.DeliverySucceeded, all[1].State)
	})

	rule(t, "DoesNotFollowWhatAnEarlierURLAnswered", func(t *testing.T, h *fixture) {
		url, arrived, release := hang(t, http.StatusGone)
		rec := receive(t, nil)
		hook := h.hook(t, url, nil)
		h.start(t)
		h.emit(t, "a")
		take(t, arrived)
		_, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{URL: models.Some(rec.URL)}, nil)
		require.NoError(t, err)
		release()
		h.await(t, hook.ID, attempted(1))
		h.db.Clock.Advance(5 * time.Second)
		d := h.await(t, hook.ID, settled(1))[0]
		require.Equal(t, models.DeliverySucceeded, d.State, "the new one takes it")
		require.Len(t, rec.got(), 1)
		got, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.True(t, got.Enabled)
		require.Nil(t, got.FailingSince)
	})
}
