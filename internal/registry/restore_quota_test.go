package registry_test

import (
	"crypto/sha256"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
	"comet/store"
)

// TestRestoreWithinQuota restores agents of tokens whose quota is exhausted.
func TestRestoreWithinQuota(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, func(t *testing.T, f *fixture) {
		owner, other := writer(), writer()
		owner.TokenID, owner.Name, other.TokenID, other.Name = "owner", "owner", "other", "other"
		child := owner
		child.TokenID, child.Name = "child", "child"
		require.NoError(t, f.db.Write(t.Context(), func(tx *store.Tx) error {
			for _, by := range []models.Principal{owner, child, other} {
				next := models.Token{ID: by.TokenID, Name: by.Name, Hash: sha256.Sum256([]byte(by.TokenID)), Scopes: by.Scopes, CreatedAt: tx.Now()}
				if by.TokenID == "child" {
					next.ParentID = &owner.TokenID
				}
				if err := tx.Tokens().Insert(next); err != nil {
					return err
				}
			}
			return nil
		}))
		require.NoError(t, f.db.Close())
		opts := f.db.Options
		opts.Quotas = map[string]int{"agents": 2}
		s, err := store.Open(t.Context(), opts)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		f.db.Store, f.Registry = s, registry.New(s, nil)

		create := func(by models.Principal, id string) error {
			_, err := f.Create(t.Context(), by, specialist(id, "orch-social"), nil)
			return err
		}
		restore := func(by models.Principal, id string) error {
			_, err := f.Update(t.Context(), by, id, registry.AgentPatch{IsActive: models.Some(true)}, nil)
			return err
		}
		requireExhausted := func(err error) {
			t.Helper()
			require.Equal(t, errs.LimitReached, errs.CodeOf(err), "%v", err)
			require.ErrorContains(t, err, `the token "owner" (owner) and its descendants may have created at most 2 agents`)
		}
		require.NoError(t, create(child, "one"))
		require.NoError(t, create(owner, "two"))
		f.deactivate(t, "one")
		require.NoError(t, create(owner, "three"))
		f.requireUntouched(t, func() {
			for _, by := range []models.Principal{owner, child, other} {
				requireExhausted(restore(by, "one"))
			}
			for _, by := range []models.Principal{child, other} {
				_, err := f.load(t, by, "version: 1\nagents:\n  - {id: one, name: One, level: 2, sphere_id: 1, parent_id: orch-social}\n")
				requireExhausted(err)
			}
		})
		_, err = f.load(t, other, "version: 1\nagents:\n"+
			"  - {id: one, name: One, level: 2, sphere_id: 1, parent_id: orch-social}\n"+
			"  - {id: two, name: Two, level: 2, sphere_id: 1, parent_id: orch-social, is_active: false}\n")
		require.NoError(t, err, "another agent is deactivated in the same import")
		require.True(t, f.agent(t, "one").IsActive)
		requireExhausted(restore(other, "two"))
		f.deactivate(t, "one")
		require.NoError(t, restore(other, "two"))
		require.NoError(t, restore(admin(), "one"), "an administrator may exceed the quota")
		requireExhausted(create(child, "four"))

		require.NoError(t, create(admin(), "of-admin"))
		f.deactivate(t, "of-admin")
		require.NoError(t, restore(owner, "of-admin"), "no token with a quota created it")
	})
}
