package webhooks_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/webhooks"
	"comet/webhooks/signature"
)

func TestUpdate(t *testing.T) {
	t.Parallel()

	rule(t, "ChangesTheMembersThatArePresent", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		before := h.hook(t, url, func(d *webhooks.WebhookDraft) { d.Description = "old" })
		want := before
		for _, step := range []struct {
			patch webhooks.WebhookPatch
			apply func()
		}{
			{webhooks.WebhookPatch{URL: models.Some("https://example.org/")}, func() { want.URL = "https://example.org/" }},
			{webhooks.WebhookPatch{Events: models.Some(events.ForWebhooks())}, func() { want.Events = events.ForWebhooks() }},
			{webhooks.WebhookPatch{Description: models.Some("new")}, func() { want.Description = "new" }},
			{webhooks.WebhookPatch{Description: models.Optional[string]{Set: true, Null: true}}, func() { want.Description = "" }},
			{webhooks.WebhookPatch{AgentID: models.Some("finance"), Subtree: models.Some(true)}, func() { want.AgentID, want.Subtree = new("finance"), true }},
			{webhooks.WebhookPatch{Subtree: models.Some(false)}, func() { want.Subtree = false }},
			{webhooks.WebhookPatch{Subtree: models.Some(true)}, func() { want.Subtree = true }},
			{webhooks.WebhookPatch{AgentID: models.Optional[string]{Set: true, Null: true}}, func() { want.AgentID, want.Subtree = nil, false }},
			{webhooks.WebhookPatch{Ordering: models.Some(models.OrderingAgent)}, func() { want.Ordering = models.OrderingAgent }},
			{webhooks.WebhookPatch{Enabled: models.Some(false)}, func() { want.Enabled, want.DisabledAt = false, new(h.db.Now()) }},
			{webhooks.WebhookPatch{Enabled: models.Some(true)}, func() { want.Enabled, want.DisabledAt = true, nil }},
		} {
			h.db.Clock.Advance(time.Second)
			step.apply()
			want.UpdatedAt = h.db.Now()
			want.Version++
			got, err := h.Update(t.Context(), ops(), before.ID, step.patch, nil)
			require.NoError(t, err)
			require.Equal(t, want, got)
			got, err = h.Get(t.Context(), ops(), before.ID)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})

	rule(t, "ThatChangesNothingLeavesNoTrace", func(t *testing.T, h *fixture) {
		before := h.hook(t, url, nil)
		h.db.Clock.Advance(time.Second)
		for _, p := range []webhooks.WebhookPatch{
			{}, {URL: models.Some(url), Enabled: models.Some(true), Asymmetric: models.Some(false), Events: models.Some(slices.Clone(before.Events))},
		} {
			got, err := h.Update(t.Context(), ops(), before.ID, p, nil)
			require.NoError(t, err)
			require.Equal(t, before, got)
		}
	})

	rule(t, "MakesAndDropsTheSigningKey", func(t *testing.T, h *fixture) {
		hook := h.hook(t, url, nil)
		patch := func(asymmetric bool) models.WebhookKeys {
			got, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{Asymmetric: models.Some(asymmetric)}, nil)
			require.NoError(t, err)
			return got.Keys
		}
		first := patch(true)
		require.Len(t, webhooks.PublicKeys(first, h.db.Now()), 1)
		require.Equal(t, first, patch(true), "it keeps the one it has")
		require.Empty(t, webhooks.PublicKeys(patch(false), h.db.Now()))
		require.NotEqual(t, first.SigningKey, patch(true).SigningKey)
	})

	rule(t, "RefusesInTheOrderOfTheClasses", func(t *testing.T, h *fixture) {
		hook := h.hook(t, url, nil)
		null := webhooks.WebhookPatch{}
		for _, set := range []*bool{&null.URL.Null, &null.Events.Null, &null.Subtree.Null, &null.Ordering.Null, &null.Enabled.Null, &null.Asymmetric.Null} {
			*set = true
		}
		null.URL.Set, null.Events.Set, null.Subtree.Set, null.Ordering.Set, null.Enabled.Set, null.Asymmetric.Set = true, true, true, true, true, true
		for name, c := range map[string]struct {
			id     string
			patch  webhooks.WebhookPatch
			code   errs.Code
			places []string
		}{
			"unknown": {"no-such-agent", null, errs.NotFound, nil},
			"null": {hook.ID, null, errs.InvalidRequest, []string{
				"/url not_null", "/events not_null", "/subtree not_null", "/ordering not_null", "/enabled not_null", "/asymmetric not_null",
			}},
			"an address":  {hook.ID, webhooks.WebhookPatch{URL: models.Some("http://10.0.0.1/")}, errs.AddressRefused, []string{"/url address"}},
			"an agent":    {hook.ID, webhooks.WebhookPatch{AgentID: models.Some("no-such-agent")}, errs.InvalidRequest, []string{"/agent_id exists"}},
			"a subtree":   {hook.ID, webhooks.WebhookPatch{Subtree: models.Some(true)}, errs.InvalidRequest, []string{"/subtree agent_id"}},
			"an event":    {hook.ID, webhooks.WebhookPatch{Events: models.Some([]models.EventType{"x"})}, errs.InvalidRequest, []string{"/events/0 event"}},
			"no event":    {hook.ID, webhooks.WebhookPatch{Events: models.Some([]models.EventType{})}, errs.InvalidRequest, []string{"/events min"}},
			"an ordering": {hook.ID, webhooks.WebhookPatch{Ordering: models.Some(models.Ordering("x"))}, errs.InvalidRequest, []string{"/ordering oneof"}},
		} {
			_, err := h.Update(t.Context(), ops(), c.id, c.patch, nil)
			code, places := refusal(err)
			require.Equal(t, c.code, code, "%s: %v", name, err)
			require.Equal(t, c.places, places, name)
		}
		got, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.Equal(t, hook, got)
	})

	rule(t, "WithAnotherURLForgetsTheFailuresOfTheOldOne", func(t *testing.T, h *fixture) {
		rec := receive(t, always(http.StatusInternalServerError))
		hook := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "a")
		h.await(t, hook.ID, attempted(1))
		got, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{URL: models.Some(receive(t, nil).URL)}, nil)
		require.NoError(t, err)
		require.Nil(t, got.FailingSince)
		h.db.Clock.Advance(5 * time.Second)
		h.await(t, hook.ID, settled(1), "the retry goes to the new URL")
	})

	rule(t, "TakesEffectOnWhatIsNotBegun", func(t *testing.T, h *fixture) {
		url, arrived, release := hang(t, http.StatusOK)
		rec := receive(t, nil)
		hook := h.hook(t, url, nil)
		h.emit(t, make([]string, 50)...)
		h.received(t, hook.ID)
		h.start(t)
		take(t, arrived)
		_, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{URL: models.Some(rec.URL)}, nil)
		require.NoError(t, err)
		release()
		h.await(t, hook.ID, settled(50))
		require.Len(t, rec.got(), 49)
		require.Empty(t, arrived)
	})
}

func TestRotate(t *testing.T) {
	t.Parallel()

	rule(t, "HasTheOldKeysSignTooForTheGracePeriod", func(t *testing.T, h *fixture) {
		created, err := h.Create(t.Context(), ops(), draft(func(d *webhooks.WebhookDraft) { d.Asymmetric = new(true) }), nil)
		require.NoError(t, err)
		old := created.Webhook.Keys
		rotated, err := h.Rotate(t.Context(), ops(), created.Webhook.ID, rotation("", time.Hour), nil, nil)
		require.NoError(t, err)
		require.NotEqual(t, created.Secret, rotated.Secret)
		keys := rotated.Webhook.Keys
		require.Equal(t, signature.FormatSecret(keys.Secret), rotated.Secret)
		require.Equal(t, []models.PreviousKeys{{Secret: old.Secret, SigningKey: old.SigningKey, Until: h.db.Now().Add(time.Hour)}}, keys.PreviousKeys)
		require.NotEqual(t, old.SigningKey, keys.SigningKey)
		got, err := h.Get(t.Context(), ops(), created.Webhook.ID)
		require.NoError(t, err)
		require.Equal(t, rotated.Webhook, got)

		again, err := h.Rotate(t.Context(), ops(), created.Webhook.ID, rotation("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", 0), nil, nil)
		require.NoError(t, err)
		require.Equal(t, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", again.Secret)
		require.Empty(t, again.Webhook.Keys.PreviousKeys, "without grace the old ones end at once")
	})

	rule(t, "LetsEveryPreviousSecretSignUntilItsOwnEnd", func(t *testing.T, h *fixture) {
		created, err := h.Create(t.Context(), ops(), draft(nil), nil)
		require.NoError(t, err)
		ends := func() (out []time.Duration) {
			got, err := h.Get(t.Context(), ops(), created.Webhook.ID)
			require.NoError(t, err)
			for _, p := range got.Keys.PreviousKeys {
				out = append(out, p.Until.Sub(h.db.Now()))
			}
			return out
		}
		for _, grace := range []time.Duration{10 * time.Minute, time.Minute, time.Hour} {
			_, err := h.Rotate(t.Context(), ops(), created.Webhook.ID, rotation("", grace), nil, nil)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{time.Hour, time.Minute, 10 * time.Minute}, ends())
		h.db.Clock.Advance(time.Minute)
		for range 3 {
			_, err = h.Rotate(t.Context(), ops(), created.Webhook.ID, rotation("", time.Hour), nil, nil)
			require.NoError(t, err)
		}
		require.Equal(t, []time.Duration{time.Hour, time.Hour, time.Hour, 59 * time.Minute, 9 * time.Minute}, ends(), "the ended one is forgotten")
		_, err = h.Rotate(t.Context(), ops(), created.Webhook.ID, rotation("", time.Hour), nil, nil)
		require.Equal(t, errs.LimitReached, errs.CodeOf(err))
		require.ErrorContains(t, err, "5 previous secrets of this webhook still sign")
		require.Len(t, ends(), 5)
		_, err = h.Rotate(t.Context(), ops(), created.Webhook.ID, rotation("", 0), nil, nil)
		require.NoError(t, err)
		require.Empty(t, ends())
	})

	rule(t, "RefusesWhatIsNoSecretAndNoGrace", func(t *testing.T, h *fixture) {
		hook := h.hook(t, url, nil)
		_, err := h.Rotate(t.Context(), ops(), "no-such-webhook", rotation("", 0), nil, nil)
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		_, err = h.Rotate(t.Context(), ops(), hook.ID, rotation("short", 8*24*time.Hour), nil, nil)
		code, places := refusal(err)
		require.Equal(t, errs.InvalidRequest, code)
		require.Equal(t, []string{"/grace_seconds max", "/secret secret"}, places)
		got, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.Equal(t, hook, got)
	})

	rule(t, "OnceGivesTheStoredAnswer", func(t *testing.T, h *fixture) {
		hook := h.hook(t, url, nil)
		once := func() *models.Idempotency {
			return &models.Idempotency{Principal: "ops", Key: "k", Render: func(any) (models.StoredResponse, error) { return models.StoredResponse{Status: 200}, nil }}
		}
		first, err := h.Rotate(t.Context(), ops(), hook.ID, rotation("", time.Hour), nil, once())
		require.NoError(t, err)
		replayed := once()
		_, err = h.Rotate(t.Context(), ops(), hook.ID, rotation("", time.Hour), nil, replayed)
		require.NoError(t, err)
		require.NotNil(t, replayed.Replay)
		got, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.Equal(t, first.Webhook.Keys, got.Keys, "it was rotated once")
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()

	rule(t, "TakesTheDeliveriesAlong", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		hook, other := h.hook(t, rec.URL, nil), h.hook(t, rec.URL, nil)
		h.emit(t, make([]string, 1500)...)
		h.received(t, other.ID)
		require.NoError(t, h.Webhooks.Delete(t.Context(), ops(), hook.ID, nil))
		for _, err := range []error{
			func() error { _, err := h.Get(t.Context(), ops(), hook.ID); return err }(),
			func() error {
				_, err := h.Deliveries(t.Context(), ops(), hook.ID, store.DeliveryQuery{Limit: 1})
				return err
			}(),
			h.Webhooks.Delete(t.Context(), ops(), hook.ID, nil),
		} {
			require.Equal(t, errs.NotFound, errs.CodeOf(err))
			require.Contains(t, err.Error(), `there is no webhook "`+hook.ID+`"`)
		}
		require.Empty(t, h.rawDeliveries(t, hook.ID))
		require.Len(t, h.deliveries(t, other.ID), 1500)
	})

	rule(t, "DoesNotMindWhatIsInFlight", func(t *testing.T, h *fixture) {
		url, arrived, release := hang(t, http.StatusOK)
		hook := h.hook(t, url, nil)
		rec := receive(t, nil)
		other := h.hook(t, rec.URL, nil)
		h.start(t)
		h.emit(t, "a", "b")
		take(t, arrived)
		require.NoError(t, h.Webhooks.Delete(t.Context(), ops(), hook.ID, nil))
		release()
		h.emit(t, "c")
		h.await(t, other.ID, settled(3))
		require.NoError(t, h.Stop(t.Context()))
		require.Empty(t, arrived, "nothing more was begun")
		require.Empty(t, h.rawDeliveries(t, hook.ID))
	})
}

// rawDeliveries are those in the table, whether there is a webhook or not.
func (h *fixture) rawDeliveries(t *testing.T, id string) []models.Delivery {
	t.Helper()
	all, err := h.db.Deliveries(t.Context()).List(id, store.DeliveryQuery{Limit: 10_000})
	require.NoError(t, err)
	due, _, err := h.db.Deliveries(t.Context()).Due(id, h.db.Now().Add(time.Hour), store.DueCursor{}, 10_000)
	require.NoError(t, err)
	require.LessOrEqual(t, len(due), len(all))
	return all
}
