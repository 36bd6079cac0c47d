package webhooks_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/webhooks"
)

// keep writes n pending deliveries of a webhook, of seven keys in turn.
func (h *fixture) keep(t *testing.T, hook models.Webhook, first, n int) {
	t.Helper()
	all, busy := make([]store.NewDelivery, n), map[string]bool{}
	for i := range all {
		key := strconv.Itoa(i % 7)
		e := models.Event{
			ID: "event-" + strconv.Itoa(first+i), Position: int64(first + i), Type: events.AgentUpdated, Key: key, At: h.db.Now(), Data: []byte("{}"),
		}
		ordered := hook.Ordering == models.OrderingAgent
		all[i] = store.NewDelivery{WebhookID: hook.ID, Event: &e, Ordered: ordered, Waiting: ordered && busy[key]}
		busy[key] = true
	}
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error { return tx.Deliveries().Insert(all) }))
}

// TestAnotherOrderingIsRefusedWhileMuchIsPending: no other writer runs while the
// deliveries are ordered.
func TestAnotherOrderingIsRefusedWhileMuchIsPending(t *testing.T) {
	t.Parallel()
	const most = 5000
	for from, to := range map[models.Ordering]models.Ordering{
		models.OrderingNone: models.OrderingAgent, models.OrderingAgent: models.OrderingNone,
	} {
		rule(t, string("From_"+from), func(t *testing.T, h *fixture) {
			hook := h.hook(t, url, func(d *webhooks.WebhookDraft) { d.Ordering = &from })
			other := h.hook(t, url, nil)
			h.keep(t, hook, 0, most+1)
			h.keep(t, other, 0, 1)
			patch := webhooks.WebhookPatch{Ordering: models.Some(to), Description: models.Some("new")}
			_, err := h.Update(t.Context(), ops(), hook.ID, patch, nil)
			code, places := refusal(err)
			require.Equal(t, errs.LimitReached, code)
			require.Equal(t, []string{"/ordering pending"}, places)
			require.Contains(t, err.Error(), "more than 5000 deliveries")
			got, err := h.db.Webhooks(t.Context()).Get(hook.ID)
			require.NoError(t, err)
			require.Equal(t, hook, got)
			_, err = h.Update(t.Context(), ops(), hook.ID, webhooks.WebhookPatch{Description: models.Some("new"), Ordering: models.Some(from)}, nil)
			require.NoError(t, err, "which is not another one")
			_, err = h.Update(t.Context(), ops(), other.ID, patch, nil)
			require.NoError(t, err)

			require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
				d, err := tx.Deliveries().Lock(hook.ID, h.deliveries(t, hook.ID)[0].ID)
				if err != nil {
					return err
				}
				return tx.Deliveries().MarkDead(d, models.DeliveryAttempt{At: tx.Now(), Error: "no"})
			}))
			_, err = h.Update(t.Context(), ops(), hook.ID, patch, nil)
			require.NoError(t, err, "one has ended")
		})
	}
}
