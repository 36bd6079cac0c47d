package store

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
)

// TestDeliveryPlans reads SQLite's plans of what runs for every delivery, however
// many there have been.
func TestDeliveryPlans(t *testing.T) {
	t.Parallel()
	s, _ := openSQLiteForTest(t)
	now := time.Now()

	t.Run("TheFirstDueDeliveryOfEachWebhookIsOneIndexLookup", func(t *testing.T) {
		t.Parallel()
		plan := explain(t, s, dueQuery, nil)
		require.Contains(t, plan, "SEARCH deliveries USING COVERING INDEX deliveries_due (webhook_id=?)")
		require.NotContains(t, plan, "SCAN deliveries")
	})

	t.Run("APageOfDueDeliveriesIsReadInTheIndexsOrder", func(t *testing.T) {
		t.Parallel()
		plan := explain(t, s, duePageQuery, []any{"w", now, 5, 5, 256})
		require.Contains(t, plan, "USING INDEX deliveries_due (webhook_id=? AND (due,position)>(?,?) AND due<?)")
		require.NotContains(t, plan, "TEMP B-TREE")
	})

	t.Run("ThePromotionHasOneLookupPerKey", func(t *testing.T) {
		t.Parallel()
		plan := explain(t, s, "WITH ended (key) AS ("+s.engine.keys+")"+promoteEnded, []any{[]string{"a", "b"}, "w", "w"})
		require.Contains(t, plan, "SEARCH d USING INDEX deliveries_ordered (webhook_id=? AND key=?)")
		require.Contains(t, plan, "SEARCH deliveries USING INDEX sqlite_autoindex_deliveries_1 (webhook_id=? AND id=?)")
		require.NotContains(t, plan, "TEMP B-TREE")
	})

	t.Run("OnlyAPageOfPendingDeliveriesIsSorted", func(t *testing.T) {
		t.Parallel()
		for _, state := range []models.DeliveryState{"", models.DeliverySucceeded, models.DeliveryDead} {
			for _, before := range []string{"", "x"} {
				for _, since := range []time.Time{{}, time.Now()} {
					query, args := deliveriesQuery("w", DeliveryQuery{State: state, Since: since, Until: since, Before: before, Limit: 10})
					plan := explain(t, s, query, args)
					require.Contains(t, plan, "(webhook_id=?", query)
					require.NotContains(t, plan, "TEMP B-TREE", query)
					if state == models.DeliveryDead {
						require.Contains(t, plan, "deliveries_dead", query)
					}
				}
			}
		}
	})

	t.Run("PendingDeliveriesAreFoundByIndex", func(t *testing.T) {
		t.Parallel()
		query, args := deliveriesQuery("w", DeliveryQuery{State: models.DeliveryPending, Limit: 10})
		plan := explain(t, s, query, args)
		require.Contains(t, plan, "deliveries_due (webhook_id=?)")
		require.Contains(t, plan, "deliveries_ordered (webhook_id=?)")
	})

	t.Run("OrderedDeliveriesAreFoundByIndex", func(t *testing.T) {
		t.Parallel()
		for query, args := range map[string][]any{
			waitQuery + s.engine.in: {"w", []string{"a"}},
			promoteAllQuery:         {"w", "w", "w"},
			"SELECT DISTINCT key FROM deliveries WHERE webhook_id = ? AND " + unfinishedOrdered + " AND key " + s.engine.in: {"w", []string{"a"}},
		} {
			plan := explain(t, s, query, args)
			require.Contains(t, plan, "deliveries_ordered (webhook_id=?", query)
			require.NotContains(t, plan, "SCAN d", query)
		}
	})

	t.Run("ThePurgeStartsWithTheOldest", func(t *testing.T) {
		t.Parallel()
		plan := explain(t, s, purgeDeliveriesQuery, []any{"w", "w", "x", now, 1000})
		require.Contains(t, plan, "SEARCH deliveries USING INDEX sqlite_autoindex_deliveries_1 (webhook_id=? AND id<?)")
		require.NotContains(t, plan, "TEMP B-TREE")
	})
}
