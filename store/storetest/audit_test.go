package storetest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestAudit(t *testing.T) {
	t.Parallel()

	rule(t, "StoresActorActionAndTime", func(t *testing.T, db *storetest.DB) {
		want := models.AuditEntry{
			AgentID: "bills", Actor: "ci-importer é", ActorID: "token-1", Action: models.AuditUpdated, RequestID: "request-1", Version: 3,
			Changes: []models.Change{
				{Field: "parent_id", From: nil, To: "finance"},
				{Field: "capabilities", From: []any{}, To: []any{"plan", "<é>"}},
				{Field: "token_budget", From: 1000.0, To: 2000.0},
				{Field: "is_active", From: true, To: false},
			},
		}
		write(t, db, func(tx *store.Tx) error { return tx.Agents().Audit(want) })
		got, err := db.Agents(t.Context()).AuditTrail("bills", 0, 10)
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Positive(t, got[0].ID)
		want.ID, want.At = got[0].ID, db.Now()
		require.Equal(t, want, got[0])
	})

	rule(t, "StoresReasonsAndLedgerActions", func(t *testing.T, db *storetest.DB) {
		for _, action := range []models.AuditAction{models.AuditBudgetAdded, models.AuditBudgetRemoved, models.AuditUsageReset} {
			want := models.AuditEntry{
				AgentID: "bills", Actor: "ops", ActorID: "token-2", Action: action, Version: 3, Reason: "month-end closing, é «日本»",
				Changes: []models.Change{{Field: "additional_budget", From: 0.0, To: 5000.0}},
			}
			write(t, db, func(tx *store.Tx) error { return tx.Agents().Audit(want) })
			got, err := db.Agents(t.Context()).AuditTrail("bills", 0, 1)
			require.NoError(t, err)
			require.Len(t, got, 1)
			want.ID, want.At = got[0].ID, db.Now()
			require.Equal(t, want, got[0])
		}
	})

	rule(t, "PagesNewestFirstThroughTheEntriesOfAnAgent", func(t *testing.T, db *storetest.DB) {
		for i := range 25 {
			for _, id := range []string{"bills", "bills-2"} {
				write(t, db, func(tx *store.Tx) error {
					return tx.Agents().Audit(models.AuditEntry{AgentID: id, Action: models.AuditCreated, RequestID: fmt.Sprint(id, i), Changes: []models.Change{}})
				})
			}
			db.Clock.Advance(time.Second)
		}
		var got []string
		before := int64(0)
		for {
			page, err := db.Agents(t.Context()).AuditTrail("bills", before, 10)
			require.NoError(t, err)
			if len(page) == 0 {
				break
			}
			for _, e := range page {
				require.Equal(t, "bills", e.AgentID)
				got = append(got, e.RequestID)
			}
			before = page[len(page)-1].ID
		}
		require.Len(t, got, 25)
		require.Equal(t, "bills24", got[0])
		require.Equal(t, "bills0", got[24])
	})

	rule(t, "OfAnAgentWithoutHistoryIsEmpty", func(t *testing.T, db *storetest.DB) {
		got, err := db.Agents(t.Context()).AuditTrail("missing", 0, 10)
		require.NoError(t, err)
		require.Empty(t, got)
		require.NotNil(t, got)
	})
}
