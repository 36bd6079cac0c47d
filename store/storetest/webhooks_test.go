package storetest_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func webhook(db *storetest.DB, id string) models.Webhook {
	return models.Webhook{
		ID: id, URL: "https://example.com/" + id, Events: []models.EventType{events.AgentUpdated}, Ordering: models.OrderingNone,
		Enabled: true, Keys: models.WebhookKeys{Secret: []byte("secret"), PreviousKeys: []models.PreviousKeys{}}, RetrySeconds: []int{}, ConfinedTo: []string{}, Version: 1, CreatedBy: "ops", CreatedAt: db.Now(), UpdatedAt: db.Now(),
	}
}

func insertWebhooks(t *testing.T, db *storetest.DB, all ...models.Webhook) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		for _, w := range all {
			if err := tx.Webhooks().Insert(w); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestWebhooks(t *testing.T) {
	t.Parallel()

	rule(t, "KeepEveryField", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		w := webhook(db, "w")
		w.Description, w.Events = "“línea” 1\n2 \\ '", events.ForWebhooks()
		w.AgentID, w.Subtree, w.Ordering, w.Enabled = new("finance"), true, models.OrderingAgent, false
		w.Headers, w.TimeoutSeconds, w.RetrySeconds, w.Version = map[string]string{"Authorization": "“key”"}, 60, []int{1, 86_400}, 3
		w.DisabledReason, w.DisabledAt, w.FailingSince, w.Failures = "gone", new(db.Now()), new(db.Now().Add(-time.Hour)), 7
		w.Keys = models.WebhookKeys{
			Secret: []byte{0, 1, 255}, SigningKey: []byte{2, 0}, PreviousKeys: []models.PreviousKeys{{Secret: []byte("old"), SigningKey: []byte("older"), Until: db.Now().Add(time.Hour)}},
		}
		plain := webhook(db, "x")
		insertWebhooks(t, db, w, plain)
		for _, want := range []models.Webhook{w, plain} {
			got, err := db.Webhooks(t.Context()).Get(want.ID)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		plain.URL, plain.Description, plain.Events, plain.UpdatedAt = "http://other", "d", nil, db.Now().Add(time.Second)
		w.Keys, w.AgentID, w.Subtree, w.Enabled, w.DisabledReason, w.DisabledAt, w.FailingSince, w.Failures = plain.Keys, nil, false, true, "", nil, nil, 0
		write(t, db, func(tx *store.Tx) error { return errors.Join(tx.Webhooks().Save(w), tx.Webhooks().Save(plain)) })
		plain.Events = []models.EventType{}
		for _, want := range []models.Webhook{w, plain} {
			write(t, db, func(tx *store.Tx) error {
				got, err := tx.Webhooks().Lock(want.ID)
				require.Equal(t, want, got)
				return err
			})
		}
		all, err := db.Webhooks(t.Context()).List(models.System(), "", 10)
		require.NoError(t, err)
		require.Equal(t, []models.Webhook{w, plain}, all)
		all, err = db.Webhooks(t.Context()).List(models.System(), "w", 10)
		require.NoError(t, err)
		require.Equal(t, []models.Webhook{plain}, all)
	})

	rule(t, "RefuseAnUnknownAgentAndATakenID", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		stray := webhook(db, "x")
		stray.AgentID = new("missing")
		for _, w := range []models.Webhook{stray, webhook(db, "w")} {
			err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.Webhooks().Insert(w) })
			require.Equal(t, errs.Conflict, errs.CodeOf(err))
		}
	})

	rule(t, "AreNotFoundWhenMissing", func(t *testing.T, db *storetest.DB) {
		_, err := db.Webhooks(t.Context()).Get("missing")
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		write(t, db, func(tx *store.Tx) error {
			for _, read := range []func(string) (models.Webhook, error){tx.Webhooks().Lock, tx.Webhooks().LockShared} {
				_, err := read("missing")
				require.Equal(t, errs.NotFound, errs.CodeOf(err))
			}
			return nil
		})
	})

	rule(t, "AreLeasedToOneOwnerAtATime", func(t *testing.T, db *storetest.DB) {
		off := webhook(db, "off")
		off.Enabled = false
		insertWebhooks(t, db, webhook(db, "w"), off)
		lease := func(id, owner string) (ok bool) {
			t.Helper()
			write(t, db, func(tx *store.Tx) (err error) {
				var w models.Webhook
				w, ok, err = tx.Webhooks().Lease(id, owner, tx.Now().Add(time.Minute))
				if ok {
					require.Equal(t, webhook(db, "w").URL, w.URL)
				}
				return err
			})
			return ok
		}
		require.False(t, lease("missing", "a"))
		require.False(t, lease("off", "a"), "a disabled one needs no owner")
		require.True(t, lease("w", "a"))
		require.False(t, lease("w", "b"))
		require.True(t, lease("w", "a"), "its owner renews it")
		db.Clock.Advance(time.Minute - time.Microsecond)
		require.False(t, lease("w", "b"))
		db.Clock.Advance(time.Microsecond)
		require.True(t, lease("w", "b"), "it has run out")
		write(t, db, func(tx *store.Tx) error { return tx.Webhooks().Release("w", "a") })
		require.False(t, lease("w", "a"), "it was not its own any more")
		write(t, db, func(tx *store.Tx) error { return tx.Webhooks().Release("w", "b") })
		require.True(t, lease("w", "a"))
		write(t, db, func(tx *store.Tx) error { return tx.Webhooks().Save(webhook(db, "w")) })
		require.False(t, lease("w", "b"), "a change leaves the lease alone")
	})
}

// deliver writes a delivery for each key, of events whose positions count from first.
func deliver(t *testing.T, db *storetest.DB, ordered bool, first int64, keys ...string) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		busy := map[string]bool{}
		if ordered {
			if err := tx.Deliveries().UnfinishedKeys("w", keys, busy); err != nil {
				return err
			}
		}
		var all []store.NewDelivery
		for i, key := range keys {
			e := models.Event{
				ID: fmt.Sprintf("event-%03d", first+int64(i)), Position: first + int64(i), Type: events.AgentUpdated, Key: key,
				At: tx.Now().Add(-time.Second), Data: []byte(`{"id":"` + key + `"}`),
			}
			all = append(all, store.NewDelivery{WebhookID: "w", Event: &e, Ordered: ordered, Waiting: ordered && busy[key]})
			busy[key] = true
		}
		return tx.Deliveries().Insert(all)
	})
}

// deliveries lists those of "w", the oldest first.
func deliveries(t *testing.T, db *storetest.DB, q store.DeliveryQuery) []models.Delivery {
	t.Helper()
	q.Limit = max(q.Limit, 1000)
	all, err := db.Deliveries(t.Context()).List("w", q)
	require.NoError(t, err)
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// ends ends the delivery with that place in the list.
func ends(t *testing.T, db *storetest.DB, place int, how func(tx *store.Tx, d models.Delivery) error) {
	t.Helper()
	id := deliveries(t, db, store.DeliveryQuery{})[place].ID
	write(t, db, func(tx *store.Tx) error {
		d, err := tx.Deliveries().Lock("w", id)
		if err != nil {
			return err
		}
		return how(tx, d)
	})
}

func succeed(tx *store.Tx, d models.Delivery) error {
	return tx.Deliveries().Succeed(d, models.DeliveryAttempt{At: tx.Now(), Status: 200})
}

func bury(tx *store.Tx, d models.Delivery) error {
	return tx.Deliveries().MarkDead(d, models.DeliveryAttempt{At: tx.Now(), Status: 500, Error: "no"})
}

func TestDeliveries(t *testing.T) {
	t.Parallel()

	rule(t, "StoreTheirEvent", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		deliver(t, db, false, 1, "a")
		listed := deliveries(t, db, store.DeliveryQuery{})[0]
		require.Nil(t, listed.Data, "a list is without the data")
		got, err := db.Deliveries(t.Context()).Get("w", listed.ID)
		require.NoError(t, err)
		require.Equal(t, models.Delivery{
			ID: listed.ID, WebhookID: "w", EventID: "event-001", Type: events.AgentUpdated, Key: "a", EventAt: db.Now().Add(-time.Second),
			Data: []byte(`{"id":"a"}`), State: models.DeliveryPending, NextAttemptAt: new(db.Now()), CreatedAt: db.Now(),
		}, got)
		_, err = db.Deliveries(t.Context()).Get("other", listed.ID)
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
	})

	rule(t, "OfOneEventAreWrittenOnce", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		deliver(t, db, false, 1, "a", "b")
		deliver(t, db, false, 2, "b", "c")
		require.Len(t, deliveries(t, db, store.DeliveryQuery{}), 3)
	})

	rule(t, "AreListedByFiltersNewestFirst", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		begun := db.Now()
		for i := range 3 {
			deliver(t, db, false, int64(10*i+1), "a", "b", "c", "d")
			db.Clock.Advance(time.Millisecond + 500*time.Microsecond)
		}
		ends(t, db, 0, succeed)
		ends(t, db, 5, bury)
		positions := func(q store.DeliveryQuery) (out []string) {
			for _, d := range deliveries(t, db, q) {
				out = append(out, strings.TrimPrefix(d.EventID, "event-"))
			}
			return out
		}
		all := []string{"001", "002", "003", "004", "011", "012", "013", "014", "021", "022", "023", "024"}
		require.Equal(t, all, positions(store.DeliveryQuery{}))
		require.Equal(t, all[:1], positions(store.DeliveryQuery{State: models.DeliverySucceeded}))
		require.Equal(t, all[5:6], positions(store.DeliveryQuery{State: models.DeliveryDead}))
		require.Len(t, positions(store.DeliveryQuery{State: models.DeliveryPending}), 10)
		require.Equal(t, all[4:], positions(store.DeliveryQuery{Since: begun.Add(1500 * time.Microsecond)}))
		require.Equal(t, all[8:], positions(store.DeliveryQuery{Since: begun.Add(1501 * time.Microsecond)}))
		require.Equal(t, all[:4], positions(store.DeliveryQuery{Until: begun.Add(1500 * time.Microsecond)}))
		require.Equal(t, all[:8], positions(store.DeliveryQuery{Until: begun.Add(1501 * time.Microsecond)}))
		require.Equal(t, all, positions(store.DeliveryQuery{Since: time.Unix(-1, 0)}))
		require.Empty(t, positions(store.DeliveryQuery{Types: []models.EventType{events.AgentCreated}}))
		require.Equal(t, all, positions(store.DeliveryQuery{Types: []models.EventType{events.AgentUpdated}}))
		var paged []string
		before := ""
		for {
			page, err := db.Deliveries(t.Context()).List("w", store.DeliveryQuery{Before: before, Limit: 5})
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, d := range page {
				paged = append([]string{strings.TrimPrefix(d.EventID, "event-")}, paged...)
			}
			before = page[len(page)-1].ID
		}
		require.Equal(t, all, paged)
	})

	rule(t, "AreDueInTheOrderOfTheirTimeAndEvents", func(t *testing.T, db *storetest.DB) {
		off := webhook(db, "off")
		off.Enabled = false
		insertWebhooks(t, db, webhook(db, "w"), webhook(db, "idle"), off)
		deliver(t, db, false, 1, "a", "b", "c", "d")
		ends(t, db, 0, func(tx *store.Tx, d models.Delivery) error {
			return tx.Deliveries().Fail(d, models.DeliveryAttempt{At: tx.Now()}, tx.Now().Add(time.Minute))
		})
		ends(t, db, 1, succeed)
		db.Clock.Advance(time.Second)
		deliver(t, db, false, 5, "e")
		keys := func(after store.DueCursor, limit int) (out []string, place store.DueCursor) {
			t.Helper()
			due, place, err := db.Deliveries(t.Context()).Due("w", db.Now(), after, limit)
			require.NoError(t, err)
			for _, d := range due {
				full, err := db.Deliveries(t.Context()).Get("w", d.ID)
				require.NoError(t, err)
				require.Equal(t, []any{full.EventID, full.Type, full.Data, full.EventAt, full.Attempts}, []any{d.EventID, d.Type, d.Data, d.EventAt, d.Attempts})
				out = append(out, d.Key)
			}
			return out, place
		}
		first, place := keys(store.DueCursor{}, 2)
		require.Equal(t, []string{"c", "d"}, first)
		second, place := keys(place, 2)
		require.Equal(t, []string{"e"}, second)
		none, place := keys(place, 2)
		require.Empty(t, none)
		endpoints, err := db.Webhooks(t.Context()).DueEndpoints()
		require.NoError(t, err)
		require.Equal(t, []store.Endpoint{{WebhookID: "w", Due: db.Now().Add(-time.Second)}}, endpoints)
		db.Clock.Advance(time.Minute)
		behind, _ := keys(place, 2)
		require.Equal(t, []string{"a"}, behind)
	})

	rule(t, "StoreTheirAttempts", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		deliver(t, db, false, 1, "a", "b", "c")
		all := deliveries(t, db, store.DeliveryQuery{})
		long := strings.Repeat("é", 600) + "\x00\xff"
		failure := models.DeliveryAttempt{At: db.Now(), DurationMS: 7, Status: 503, Error: long, ResponseExcerpt: long}
		ends(t, db, 0, func(tx *store.Tx, d models.Delivery) error { return tx.Deliveries().Fail(d, failure, tx.Now()) })
		success := models.DeliveryAttempt{At: db.Now().Add(time.Second), DurationMS: 84, Status: 204, ResponseExcerpt: "ok"}
		write(t, db, func(tx *store.Tx) error {
			ended := func(ids ...string) (out []store.Ended) {
				for _, id := range ids {
					out = append(out, store.Ended{DeliveryID: id, Attempt: success})
				}
				return out
			}
			rest, err := tx.Deliveries().SucceedAll("w", ended(all[0].ID, all[1].ID, "gone", all[2].ID))
			require.Equal(t, ended(all[0].ID, "gone"), rest, "what is not there, and what was tried before")
			return err
		})
		ends(t, db, 0, func(tx *store.Tx, d models.Delivery) error { return tx.Deliveries().Succeed(d, success) })
		ends(t, db, 0, func(tx *store.Tx, d models.Delivery) error { return tx.Deliveries().CountFailure(d, failure) })
		for i, want := range []int{3, 1, 1} {
			d, err := db.Deliveries(t.Context()).Get("w", all[i].ID)
			require.NoError(t, err)
			require.Equal(t, models.DeliverySucceeded, d.State)
			require.Equal(t, db.Now(), *d.EndedAt)
			require.Equal(t, []int{want, want}, []int{d.Attempts, d.Tries})
			attempts, err := db.Deliveries(t.Context()).Attempts("w", d.ID)
			require.NoError(t, err)
			require.Len(t, attempts, want)
		}
		attempts, err := db.Deliveries(t.Context()).Attempts("w", all[0].ID)
		require.NoError(t, err)
		success.Attempt = 2
		require.Equal(t, success, attempts[1])
		for i, number := range map[int]int{0: 1, 2: 3} {
			got := attempts[i]
			require.Equal(t, number, got.Attempt)
			require.LessOrEqual(t, len(got.ResponseExcerpt), store.MaxResponseExcerpt)
			require.True(t, strings.HasPrefix(long, got.ResponseExcerpt))
			require.LessOrEqual(t, len(got.Error), 1000)
		}
		require.Empty(t, func() []models.DeliveryAttempt { a, _ := db.Deliveries(t.Context()).Attempts("x", all[0].ID); return a }())
	})

	rule(t, "AreDeletedWithTheirWebhook", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		deliver(t, db, false, 1, "a", "b", "c")
		ends(t, db, 0, bury)
		ends(t, db, 0, func(tx *store.Tx, d models.Delivery) error { return tx.Deliveries().Redeliver(d, models.OrderingNone) })
		ends(t, db, 0, bury)
		write(t, db, func(tx *store.Tx) error {
			n, err := tx.Deliveries().Delete("w", 2)
			require.EqualValues(t, 2, n)
			return err
		})
		require.Equal(t, "c", deliveries(t, db, store.DeliveryQuery{})[0].Key)
		write(t, db, func(tx *store.Tx) error { return tx.Webhooks().Delete("w") })
		require.Empty(t, deliveries(t, db, store.DeliveryQuery{}))
	})

	rule(t, "ArePurgedFromTheOldest", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		deliver(t, db, false, 1, "pending", "a", "b", "c")
		for i := range 3 {
			ends(t, db, 1+i, bury)
			db.Clock.Advance(time.Second)
		}
		purge := func(before time.Time) (n int64) {
			write(t, db, func(tx *store.Tx) (err error) {
				n, err = tx.Deliveries().Purge("w", before, 1)
				return err
			})
			return n
		}
		require.Zero(t, purge(db.Now().Add(-3*time.Second)))
		require.EqualValues(t, 1, purge(db.Now().Add(-time.Second)))
		require.EqualValues(t, 1, purge(db.Now().Add(-time.Second)))
		require.Zero(t, purge(db.Now().Add(-time.Second)))
		left := deliveries(t, db, store.DeliveryQuery{})
		require.Equal(t, []string{"pending", "c"}, []string{left[0].Key, left[1].Key})
	})
}

func TestOrderedWebhook(t *testing.T) {
	t.Parallel()
	promote := func(keys ...string) func(*store.Tx) error {
		return func(tx *store.Tx) error { return tx.Deliveries().Promote("w", keys) }
	}

	rule(t, "PromotesTheNextDeliveryOfAKey", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		deliver(t, db, true, 1, "a", "b", "a", "a", "b")
		require.Equal(t, "a b (a) (a) (b)", standing(t, db))
		deliver(t, db, true, 6, "a", "c", "c")
		require.Equal(t, "a b (a) (a) (b) (a) c (c)", standing(t, db))
		write(t, db, promote("a", "b", "c", "missing"))
		require.Equal(t, "a b (a) (a) (b) (a) c (c)", standing(t, db), "nothing has ended")
		ends(t, db, 0, succeed)
		ends(t, db, 1, bury)
		write(t, db, promote("a", "b"))
		require.Equal(t, "a! b! a (a) b (a) c (c)", standing(t, db))
		ends(t, db, 3, succeed) // it was in flight when the webhook became ordered
		ends(t, db, 2, succeed)
		write(t, db, promote("a"))
		require.Equal(t, "a! b! a! a! b a c (c)", standing(t, db))
		deliver(t, db, true, 9, "a", "d")
		require.Equal(t, "a! b! a! a! b a c (c) (a) d", standing(t, db))
	})

	rule(t, "IsMadeOrderedAndUnordered", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		deliver(t, db, false, 1, "a", "b", "a", "a", "b")
		ends(t, db, 0, succeed)
		write(t, db, func(tx *store.Tx) error { return tx.Deliveries().Order("w") })
		require.Equal(t, "a! b a (a) (b)", standing(t, db))
		write(t, db, func(tx *store.Tx) error { return tx.Deliveries().Unorder("w") })
		require.Equal(t, "a! b a a b", standing(t, db))
		write(t, db, func(tx *store.Tx) error { return tx.Deliveries().Order("w") })
		require.Equal(t, "a! b a (a) (b)", standing(t, db))
	})

	rule(t, "OrdersARedeliveredDelivery", func(t *testing.T, db *storetest.DB) {
		insertWebhooks(t, db, webhook(db, "w"))
		deliver(t, db, true, 1, "a", "a", "a", "b")
		again := func(tx *store.Tx, d models.Delivery) error { return tx.Deliveries().Redeliver(d, models.OrderingAgent) }
		ends(t, db, 0, succeed)
		write(t, db, promote("a"))
		require.Equal(t, "a! a (a) b", standing(t, db))
		ends(t, db, 0, again)
		require.Equal(t, "a (a) (a) b", standing(t, db))
		ends(t, db, 2, again)
		require.Equal(t, "a (a) (a) b", standing(t, db))
		ends(t, db, 0, succeed)
		write(t, db, promote("a"))
		ends(t, db, 1, bury)
		write(t, db, promote("a"))
		require.Equal(t, "a! a! a b", standing(t, db))
		ends(t, db, 3, bury)
		write(t, db, func(tx *store.Tx) error {
			n, last, err := tx.Deliveries().RedeliverAll("w", store.DeliveryQuery{Limit: 10}, false, tx.Now(), models.OrderingAgent)
			require.NotEmpty(t, last)
			require.Equal(t, 2, n)
			return err
		})
		require.Equal(t, "a! a (a) b", standing(t, db))
		for _, d := range deliveries(t, db, store.DeliveryQuery{})[1:] {
			require.Zero(t, d.Tries)
		}
	})
}
