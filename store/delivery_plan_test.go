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
	now := micros(time.Now())

	t.Run("TheFirstDueDeliveryOfEachWebhookIsOneLookIntoTheIndex", func(t *testing.T) {
		t.Parallel()
		plan := explain(t, s, s.dueQuery(), nil)
		require.Contains(t, plan, "SEARCH deliveries USING COVERING INDEX deliveries_due (webhook_id=?)")
		require.NotContains(t, plan, "SCAN deliveries")
	})

	t.Run("APageOfDueDeliveriesIsReadInTheIndexsOrder", func(t *testing.T) {
		t.Parallel()
		plan := explain(t, s, s.duePageQuery(), []any{"w", now, 256})
		require.Contains(t, plan, "USING INDEX deliveries_due (webhook_id=? AND due<?)")
		require.NotContains(t, plan, "TEMP B-TREE")
	})

	t.Run("ThePromotionLooksOnceForEachKey", func(t *testing.T) {
		t.Parallel()
		plan := explain(t, s, promoteQuery("(?, ?)"), []any{"a", "b", "w", "w"})
		require.Contains(t, plan, "SEARCH d USING INDEX deliveries_key (webhook_id=? AND key=?)")
		require.Contains(t, plan, "SEARCH deliveries USING INDEX sqlite_autoindex_deliveries_1 (webhook_id=? AND id=?)")
		require.NotContains(t, plan, "TEMP B-TREE")
	})

	t.Run("NoPageOfTheListIsSortedButThatOfThePendingOnes", func(t *testing.T) {
		t.Parallel()
		for _, state := range []models.DeliveryState{"", models.DeliverySucceeded, models.DeliveryDead} {
			for _, before := range []string{"", "x"} {
				for _, since := range []time.Time{{}, time.Now()} {
					query, args := s.deliveriesQuery("w", models.DeliveryQuery{State: state, Since: since, Until: since, Before: before, Limit: 10})
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

	t.Run("ThePurgeFindsWhatEndedByItsTime", func(t *testing.T) {
		t.Parallel()
		plan := explain(t, s, purgeDeliveriesQuery, []any{now, 1000})
		require.Contains(t, plan, "USING INDEX deliveries_ended (due<?)")
	})
}
