package webhooks_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"comet/store/pubsub"
	"comet/store/schedules"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/webhooks"
)

// filter subscribes to other events, and retries once after a second.
func filter(types ...models.EventType) func(*webhooks.WebhookDraft) {
	return func(d *webhooks.WebhookDraft) { d.Events, d.RetrySeconds = types, []int{1} }
}

// deaths returns the events webhook.delivery_dead.
func (h *fixture) deaths(t *testing.T) (all []webhooks.DeliveryDead) {
	t.Helper()
	list, err := h.db.Events(t.Context()).Between(0, 1_000_000, []models.EventType{events.DeliveryDead}, 1000)
	require.NoError(t, err)
	for _, e := range list {
		var data webhooks.DeliveryDead
		require.NoError(t, json.Unmarshal(e.Data, &data))
		require.Equal(t, data.WebhookID, e.Key)
		all = append(all, data)
	}
	return all
}

func TestDeadDelivery(t *testing.T) {
	t.Parallel()

	rule(t, "IsToldToOtherWebhooks", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		watching := h.hook(t, rec.URL, filter("webhook.*"))
		failing := h.hook(t, receive(t, always(http.StatusServiceUnavailable)).URL+"/in?secret", filter("*"))
		h.start(t)
		h.emit(t, "a")
		h.await(t, failing.ID, attempted(1))
		h.db.Clock.Advance(time.Second)
		dead := h.await(t, failing.ID, settled(1))[0]
		require.Equal(t, models.DeliveryDead, dead.State)
		told := h.await(t, watching.ID, settled(1))
		require.Equal(t, events.DeliveryDead, told[0].Type)
		u := failing.URL[:len(failing.URL)-len("/in?secret")]
		require.Equal(t, []webhooks.DeliveryDead{{
			WebhookID: failing.ID, Origin: u, DeliveryID: dead.ID, EventID: dead.EventID, Event: events.AgentUpdated,
			Attempts: 2, Error: "the server answered 503 Service Unavailable",
		}}, h.deaths(t))
		h.emit(t, "b")
		h.await(t, failing.ID, attempted(3))
		require.Len(t, h.deliveries(t, failing.ID), 2, "the failing webhook gets no event about its own delivery")
	})

	rule(t, "IsNotToldBackAndForth", func(t *testing.T, h *fixture) {
		rec := receive(t, always(http.StatusInternalServerError))
		one, two := h.hook(t, rec.URL, filter(events.DeliveryDead, events.AgentUpdated)), h.hook(t, rec.URL, filter("*"))
		h.start(t)
		h.emit(t, "a")
		h.await(t, one.ID, attempted(1))
		h.await(t, two.ID, attempted(1))
		h.db.Clock.Advance(time.Second)
		h.await(t, one.ID, attempted(3))
		h.await(t, two.ID, attempted(3))
		h.db.Clock.Advance(time.Second)
		require.Len(t, h.await(t, one.ID, settled(2)), 2)
		require.Len(t, h.await(t, two.ID, settled(2)), 2)
		require.Len(t, h.deaths(t), 2, "of the two deliveries of agent.updated")
	})
}

func TestWildcards(t *testing.T) {
	t.Parallel()
	rule(t, "SelectTheirTypes", func(t *testing.T, h *fixture) {
		rec := receive(t, nil)
		every, agents, hooks := h.hook(t, rec.URL, filter("*")), h.hook(t, rec.URL, filter("agent.*")), h.hook(t, rec.URL, filter("webhook.*"))
		flows := h.hook(t, rec.URL, filter("workflow.*"))
		others := h.hook(t, rec.URL, filter("schedule.*", "publication.dead"))
		types, err := h.Types(t.Context())
		require.NoError(t, err)
		require.Equal(t, events.ForWebhooks(), types)
		for _, kind := range []models.EventType{events.AgentCreated, events.TaskCreated, events.BudgetWarning, events.WebhookDisabled, events.WorkflowEnded, schedules.EventRun, pubsub.EventDead} {
			require.NoError(t, emit(h.db.Store, kind, "a"))
		}
		typesOf := func(id string, n int) (out []models.EventType) {
			h.await(t, id, func(all []models.Delivery) bool { return len(all) >= n })
			for _, d := range h.deliveries(t, id) {
				out = append(out, d.Type)
			}
			return out
		}
		require.Equal(t, []models.EventType{events.AgentCreated, events.BudgetWarning, events.WebhookDisabled, events.WorkflowEnded, schedules.EventRun, pubsub.EventDead}, typesOf(every.ID, 6))
		require.Equal(t, []models.EventType{events.AgentCreated, events.BudgetWarning}, typesOf(agents.ID, 2))
		require.Equal(t, []models.EventType{events.WebhookDisabled}, typesOf(hooks.ID, 1))
		require.Equal(t, []models.EventType{events.WorkflowEnded}, typesOf(flows.ID, 1))
		require.Equal(t, []models.EventType{schedules.EventRun, pubsub.EventDead}, typesOf(others.ID, 2))
	})
}

func TestOwnRetrySchedule(t *testing.T) {
	t.Parallel()
	rule(t, "ReplacesTheDefaultUntilItIsRemoved", func(t *testing.T, h *fixture) {
		hook := h.hook(t, receive(t, always(http.StatusInternalServerError)).URL, func(d *webhooks.WebhookDraft) { d.RetrySeconds = []int{7, 3600} })
		h.start(t)
		h.emit(t, "a")
		for i, wait := range []time.Duration{7 * time.Second, time.Hour} {
			all := h.await(t, hook.ID, attempted(i+1))
			require.Equal(t, h.db.Now().Add(wait), *all[0].NextAttemptAt)
			h.db.Clock.Advance(wait)
		}
		h.await(t, hook.ID, settled(1))
		got, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{RetrySeconds: models.Optional[[]int]{Set: true, Null: true}}, nil)
		require.NoError(t, err)
		require.Empty(t, got.RetrySeconds)
		h.emit(t, "b")
		all := h.await(t, hook.ID, attempted(4))
		require.Equal(t, h.db.Now().Add(5*time.Second), *all[1].NextAttemptAt)
	})
}

func TestOwnTimeout(t *testing.T) {
	t.Parallel()
	rule(t, "OfAMinuteFitsTheLease", func(t *testing.T, h *fixture) {
		hook := h.hook(t, receive(t, nil).URL, func(d *webhooks.WebhookDraft) { d.TimeoutSeconds = new(60) })
		h.start(t)
		h.emit(t, "a")
		h.await(t, hook.ID, settled(1))
	})
}

func TestHeadersAndTheURL(t *testing.T) {
	t.Parallel()
	rule(t, "AnotherServerGetsNoSecretsOfTheFirst", func(t *testing.T, h *fixture) {
		hook := h.hook(t, "http://127.0.0.1:1/a", func(d *webhooks.WebhookDraft) { d.Headers = map[string]string{"Authorization": "Bearer x"} })
		patch := webhooks.WebhookPatch{URL: models.Some("http://127.0.0.1:2/a")}
		_, err := h.Update(t.Context(), ops(), hook.ID, patch, nil)
		code, places := refusal(err)
		require.Equal(t, errs.InvalidRequest, code)
		require.Equal(t, []string{"/headers required"}, places)
		got, err := h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{URL: models.Some("http://127.0.0.1:1/b")}, nil)
		require.NoError(t, err)
		require.Equal(t, hook.Headers, got.Headers)
		patch.Headers = models.Some(map[string]string{"X-B": "y"})
		got, err = h.Update(t.Context(), ops(), hook.ID, patch, nil)
		require.NoError(t, err)
		require.Equal(t, map[string]string{"X-B": "y"}, got.Headers)
	})
}

func TestPreconditions(t *testing.T) {
	t.Parallel()
	rule(t, "LetNoUpdateGetLost", func(t *testing.T, h *fixture) {
		hook := h.hook(t, url, nil)
		at := func(wanted int64) models.Precondition {
			return func(version int64) error {
				if version == wanted {
					return nil
				}
				return errs.New(errs.PreconditionFailed, "it is at version %d", version)
			}
		}
		patch := func(text string) webhooks.WebhookPatch {
			return webhooks.WebhookPatch{Description: models.Some(text)}
		}
		got, err := h.Update(t.Context(), ops(), hook.ID, patch("a"), at(1))
		require.NoError(t, err)
		require.EqualValues(t, 2, got.Version)
		_, err = h.Update(t.Context(), ops(), hook.ID, patch("b"), at(1))
		require.Equal(t, errs.PreconditionFailed, errs.CodeOf(err))
		_, err = h.Rotate(t.Context(), ops(), hook.ID, rotation("", time.Hour), at(1), nil)
		require.Equal(t, errs.PreconditionFailed, errs.CodeOf(err))
		require.Equal(t, errs.PreconditionFailed, errs.CodeOf(h.Webhooks.Delete(t.Context(), ops(), hook.ID, at(1))))
		read, err := h.Get(t.Context(), ops(), hook.ID)
		require.NoError(t, err)
		require.Equal(t, got, read)
		rotated, err := h.Rotate(t.Context(), ops(), hook.ID, rotation("", time.Hour), at(2), nil)
		require.NoError(t, err)
		require.EqualValues(t, 3, rotated.Webhook.Version)
		require.NoError(t, h.Webhooks.Delete(t.Context(), ops(), hook.ID, at(3)))
	})
}
