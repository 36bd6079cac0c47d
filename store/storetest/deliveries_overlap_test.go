package storetest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// standing writes down each delivery of "w", the oldest first: its key where it is
// ready, in brackets where it waits, with an exclamation mark where it has ended.
func standing(t *testing.T, db *storetest.DB) string {
	t.Helper()
	var out []string
	for _, d := range deliveries(t, db, store.DeliveryQuery{}) {
		switch {
		case d.State != models.DeliveryPending:
			out = append(out, d.Key+"!")
		case d.NextAttemptAt == nil:
			out = append(out, "("+d.Key+")")
		default:
			out = append(out, d.Key)
		}
	}
	return strings.Join(out, " ")
}

// create is what the relay's transaction does for an event of the key "a".
func create(position int64) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		subs, err := tx.Webhooks().LockSubscriptions([]string{"w"})
		if err != nil {
			return err
		}
		busy, ordered := map[string]bool{}, subs[0].Ordering == models.OrderingAgent
		if ordered {
			if err := tx.Deliveries().UnfinishedKeys("w", []string{"a"}, busy); err != nil {
				return err
			}
		}
		e := models.Event{ID: "created-" + string(rune('a'+position)), Position: position, Type: events.AgentUpdated, Key: "a", At: tx.Now(), Data: []byte("{}")}
		return tx.Deliveries().Insert([]store.NewDelivery{{WebhookID: "w", Event: &e, Ordered: ordered, Waiting: busy["a"]}})
	}
}

// end is what follows a successful attempt at a delivery of an ordered webhook, or of
// one that is not.
func end(d models.Delivery, lock func(*store.Tx) func(string) (models.Webhook, error)) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		hook, err := lock(tx)("w")
		if err != nil {
			return err
		}
		if err := succeed(tx, d); err != nil || hook.Ordering != models.OrderingAgent {
			return err
		}
		return tx.Deliveries().Promote("w", []string{d.Key})
	}
}

func exclusive(tx *store.Tx) func(string) (models.Webhook, error) { return tx.Webhooks().Lock }

func shared(tx *store.Tx) func(string) (models.Webhook, error) { return tx.Webhooks().LockShared }

// order is what follows a change of the ordering.
func order(tx *store.Tx) error {
	hook, err := tx.Webhooks().Lock("w")
	if err != nil {
		return err
	}
	hook.Ordering = models.OrderingAgent
	if err := tx.Webhooks().Save(hook); err != nil {
		return err
	}
	return tx.Deliveries().Order("w")
}

// TestOverlappingDeliveries tests that transactions that read unfinished deliveries and
// transactions that change them exclude each other.
func TestOverlappingDeliveries(t *testing.T) {
	t.Parallel()
	// setup stores a webhook and a delivery of the key "a" for each of n events.
	setup := func(t *testing.T, db *storetest.DB, ordering models.Ordering, n int64) models.Delivery {
		t.Helper()
		w := webhook(db, "w")
		w.Ordering = ordering
		insertWebhooks(t, db, w)
		for i := range n {
			write(t, db, create(i+1))
		}
		return deliveries(t, db, store.DeliveryQuery{})[0]
	}

	overlapping(t, "AnEndWaitsForACreationBehindIt", func(t *testing.T, db *storetest.DB) {
		first := setup(t, db, models.OrderingAgent, 1)
		creation := hold(t, db, create(2))
		ending := behind(t, db, end(first, exclusive))
		creation.commit(t)
		require.NoError(t, <-ending)
		require.Equal(t, "a! a", standing(t, db), "it has moved up")
	})

	overlapping(t, "ACreationWaitsForAnEndBeforeIt", func(t *testing.T, db *storetest.DB) {
		first := setup(t, db, models.OrderingAgent, 1)
		ending := hold(t, db, end(first, exclusive))
		creation := behind(t, db, create(2))
		ending.commit(t)
		require.NoError(t, <-creation)
		require.Equal(t, "a! a", standing(t, db), "there is nothing to wait for")
	})

	overlapping(t, "AnotherOrderingWaitsForTheEndsOfTheOldOne", func(t *testing.T, db *storetest.DB) {
		first := setup(t, db, models.OrderingNone, 2)
		ending := hold(t, db, end(first, shared))
		ordering := behind(t, db, order)
		ending.commit(t)
		require.NoError(t, <-ordering)
		require.Equal(t, "a! a", standing(t, db))
	})

	overlapping(t, "AnEndWaitsForAnotherOrderingAndFollowsIt", func(t *testing.T, db *storetest.DB) {
		first := setup(t, db, models.OrderingNone, 2)
		ordering := hold(t, db, order)
		var seen models.Ordering
		ending := behind(t, db, func(tx *store.Tx) error {
			hook, err := tx.Webhooks().LockShared("w")
			seen = hook.Ordering
			if err != nil {
				return err
			}
			return end(first, exclusive)(tx)
		})
		ordering.commit(t)
		require.NoError(t, <-ending)
		require.Equal(t, models.OrderingAgent, seen)
		require.Equal(t, "a! a", standing(t, db))
	})

	overlapping(t, "AnotherOrderingAndACreationGoOneAfterTheOther", func(t *testing.T, db *storetest.DB) {
		setup(t, db, models.OrderingNone, 1)
		creation := hold(t, db, create(2))
		ordering := behind(t, db, order)
		creation.commit(t)
		require.NoError(t, <-ordering)
		require.Equal(t, "a (a)", standing(t, db))
		ending := hold(t, db, end(deliveries(t, db, store.DeliveryQuery{})[0], exclusive))
		late := behind(t, db, create(3))
		ending.commit(t)
		require.NoError(t, <-late)
		require.Equal(t, "a! a (a)", standing(t, db))
	})

	overlapping(t, "NothingElseWaits", func(t *testing.T, db *storetest.DB) {
		first := setup(t, db, models.OrderingNone, 2)
		creation := hold(t, db, create(3))
		write(t, db, end(first, shared))
		write(t, db, func(tx *store.Tx) error {
			_, ok, err := tx.Webhooks().Lease("w", "me", tx.Now().Add(time.Minute))
			require.True(t, ok, "a lease is taken meanwhile")
			return err
		})
		creation.commit(t)
		require.Equal(t, "a! a a", standing(t, db))
	})
}
