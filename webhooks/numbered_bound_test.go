package webhooks_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/events"
	"comet/store"
	"comet/store/storetest"
	"comet/webhooks"
)

// measured records the largest number of events of one transaction.
type measured struct {
	*webhooks.Webhooks
	largest *atomic.Int64
}

func (m measured) Numbered(tx *store.Tx, after, upTo int64) error {
	m.largest.Store(max(m.largest.Load(), upTo-after))
	return m.Webhooks.Numbered(tx, after, upTo)
}

// TestNoTransactionWritesMoreThanAFewThousandDeliveries: other writers wait for it,
// however many webhooks there are.
func TestNoTransactionWritesMoreThanAFewThousandDeliveries(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const hooks, disabled, facts, most = 100, 25, 120, 5000
		w := &fixture{webhooks.New(db.Store, options()), db}
		var ids []string
		for i := range hooks + disabled {
			ids = append(ids, w.hook(t, url, func(d *webhooks.WebhookDraft) {
				d.Enabled = new(i < hooks)
				if i%2 == 0 {
					ordered(d)
				}
			}).ID)
		}
		keys := make([]string, facts)
		for i := range keys {
			keys[i] = strconv.Itoa(i % 10)
		}
		w.emit(t, keys...)

		var largest atomic.Int64
		opts := &events.Options{Poll: time.Hour, Deliveries: measured{w.Webhooks, &largest}}
		relay := events.NewRelay(db.Store, events.NewFeed(db.Store, opts), opts)
		require.NoError(t, relay.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, relay.Stop(context.Background())) })
		w.received(t, ids[0])
		for i, id := range ids {
			var got []string
			for _, d := range w.deliveries(t, id) {
				got = append(got, d.Key)
			}
			if i < hooks {
				require.Equal(t, keys, got)
			} else {
				require.Empty(t, got)
			}
		}
		require.LessOrEqual(t, largest.Load(), int64(most/hooks))
		require.Positive(t, largest.Load())
	})
}
