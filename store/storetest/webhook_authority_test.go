package storetest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// TestMigrationConfinesWebhooks gives the webhooks that bound tokens created before the migration their authority.
func TestMigrationConfinesWebhooks(t *testing.T) {
	t.Parallel()
	rule(t, "ToTheAgentsOfTheirTokens", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		owner, child, unbound := token(db, "owner", models.ScopeWebhooksWrite), token(db, "child", models.ScopeWebhooksWrite), token(db, "unbound", models.ScopeWebhooksWrite)
		owner.AgentID, child.AgentID, child.ParentID = new("finance"), new("bills"), &owner.ID
		save(t, db, owner, child, unbound)
		for _, by := range []models.Token{owner, child, unbound} {
			write(t, db, func(tx *store.Tx) error {
				w := webhook(db, "of-"+by.ID)
				w.TokenID = by.ID
				return tx.Webhooks().Insert(w)
			})
		}
		m := migrator(t, db)
		for {
			undone, err := m.Down(t.Context())
			require.NoError(t, err)
			require.Len(t, undone, 1)
			if undone[0] == "0017_webhook_authority.sql" {
				break
			}
		}
		_, err := m.Up(t.Context())
		require.NoError(t, err)
		for id, want := range map[string][]string{"of-owner": {"finance"}, "of-child": {"finance", "bills"}, "of-unbound": {}} {
			got, err := db.Webhooks(t.Context()).Get(id)
			require.NoError(t, err)
			require.ElementsMatch(t, want, got.ConfinedTo, id)
			require.Equal(t, id, "of-"+got.TokenID)
		}
	})
}
