package webhooks_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/ledgercheck"
	"comet/webhooks"
)

// differences verifies the ledger and returns what differs, without the reasons.
func (h *fixture) differences(t *testing.T) []ledgercheck.Difference {
	t.Helper()
	v, err := ledgercheck.Verify(t.Context(), h.db.Store)
	require.NoError(t, err)
	require.Len(t, v.Differences, int(v.Total))
	require.Empty(t, v.Repairable())
	for i := range v.Differences {
		require.NotEmpty(t, v.Differences[i].NotRepairable)
		v.Differences[i].NotRepairable = ""
	}
	return v.Differences
}

func (h *fixture) exec(t *testing.T, query string, args ...any) {
	t.Helper()
	require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
		n, err := tx.Exec(query, args...)
		require.NotZero(t, n, query)
		return err
	}))
}

// missing is a delivery of an event to a webhook that does not exist.
func missing(hook models.Webhook, e models.Event) ledgercheck.Difference {
	return ledgercheck.Difference{AgentID: e.Key, What: "delivery", Where: hook.ID + " " + e.ID, Computed: 1}
}

// TestVerificationOfDeliveries deletes events and deliveries; the ledger's verification compares them.
func TestVerificationOfDeliveries(t *testing.T) {
	t.Parallel()
	// numbered emits events and waits until the relay has written their deliveries.
	numbered := func(t *testing.T, h *fixture, keys ...string) []models.Event {
		t.Helper()
		before, err := h.db.Events(t.Context()).LastPosition()
		require.NoError(t, err)
		h.emit(t, keys...)
		var all []models.Event
		require.Eventually(t, func() bool {
			waiting, err := h.db.Events(context.Background()).Pending()
			all, _ = h.db.Events(context.Background()).After(before, 100)
			return err == nil && !waiting && len(all) == len(keys)
		}, time.Minute, 5*time.Millisecond)
		return all
	}

	rule(t, "FindsAMissingDelivery", func(t *testing.T, h *fixture) {
		tree(t, h.db)
		all := h.hook(t, "https://example.com/all", func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{"agent.*"} })
		own := h.hook(t, "https://example.com/own", func(d *webhooks.WebhookDraft) { d.AgentID = new("bills") })
		h.hook(t, "https://example.com/other", func(d *webhooks.WebhookDraft) { d.Events = []models.EventType{events.AgentCreated, "webhook.*"} })
		h.hook(t, "https://example.com/below", func(d *webhooks.WebhookDraft) { d.AgentID, d.Subtree = new("finance"), new(true) })
		early := numbered(t, h, "bills")
		h.db.Clock.Advance(2 * time.Hour)
		late := numbered(t, h, "bills", "coach")
		require.Empty(t, h.differences(t))
		h.exec(t, "DELETE FROM deliveries WHERE event_id = ?", early[0].ID)
		require.Empty(t, h.differences(t), "the webhooks may have been created after the event's number")
		h.exec(t, "DELETE FROM deliveries WHERE event_id IN (?, ?)", late[0].ID, late[1].ID)
		require.ElementsMatch(t, []ledgercheck.Difference{missing(all, late[0]), missing(own, late[0]), missing(all, late[1])}, h.differences(t))
		_, err := h.Update(t.Context(), ops(), all.ID, webhooks.WebhookPatch{Description: models.Optional[string]{Set: true, Value: "x"}}, nil)
		require.NoError(t, err)
		require.Equal(t, []ledgercheck.Difference{missing(own, late[0])}, h.differences(t), "the other one was changed since")
		h.exec(t, `UPDATE webhooks SET confined_to = '["finance"]'`)
		require.Empty(t, h.differences(t), "the tree when the deliveries were written is unknown")
		h.exec(t, "UPDATE webhooks SET confined_to = '[]', enabled = FALSE")
		require.Empty(t, h.differences(t))
	})

	rule(t, "FindsAMissingEvent", func(t *testing.T, h *fixture) {
		hook := h.hook(t, "https://example.com/in", nil)
		h.db.Clock.Advance(2 * time.Hour)
		all := numbered(t, h, "a", "b", "c")
		require.Empty(t, h.differences(t))
		h.exec(t, "DELETE FROM events WHERE id = ?", all[1].ID)
		require.Equal(t, []ledgercheck.Difference{
			{What: "positions", Stored: 2, Computed: 3}, {AgentID: "b", What: "event", Where: hook.ID + " " + all[1].ID, Computed: 1},
		}, h.differences(t))
	})

	rule(t, "ExpectsNothingThatWasPurged", func(t *testing.T, h *fixture) {
		hook := h.hook(t, "https://example.com/in", nil)
		h.db.Clock.Advance(2 * time.Hour)
		numbered(t, h, "a", "b")
		h.exec(t, "UPDATE deliveries SET state = 2, due = created_at WHERE key = 'a'")
		h.db.Clock.Advance(40 * 24 * time.Hour)
		numbered(t, h, "c")
		require.NoError(t, events.Purge(h.db.Store, 30*24*time.Hour)(t.Context()))
		left, err := h.db.Events(t.Context()).After(0, 10)
		require.NoError(t, err)
		require.Len(t, left, 1)
		require.Len(t, h.deliveries(t, hook.ID), 3)
		require.Empty(t, h.differences(t), "deliveries remain without their events")
	})

	rule(t, "ExpectsNoDeliveryThatWasPurged", func(t *testing.T, h *fixture) {
		hook := h.hook(t, "https://example.com/in", nil)
		h.db.Clock.Advance(2 * time.Hour)
		numbered(t, h, "a", "b")
		h.exec(t, "UPDATE deliveries SET state = 2, due = created_at WHERE key = 'a'")
		h.db.Clock.Advance(40 * 24 * time.Hour)
		require.NoError(t, h.Purge(t.Context()))
		require.Len(t, h.deliveries(t, hook.ID), 1)
		require.Empty(t, h.differences(t), "events remain without their deliveries")
	})
}
