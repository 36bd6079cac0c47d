package storetest_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func token(db *storetest.DB, id string, scopes ...models.Scope) models.Token {
	return models.Token{
		ID: id, Name: "token " + id, Hash: sha256.Sum256([]byte(id)), Scopes: scopes, CreatedBy: "tester", CreatedAt: db.Now(),
	}
}

func save(t *testing.T, db *storetest.DB, tokens ...models.Token) {
	t.Helper()
	write(t, db, func(tx *store.Tx) error {
		for _, token := range tokens {
			if err := tx.Tokens().Save(token); err != nil {
				return err
			}
		}
		return nil
	})
}

func TestTokens(t *testing.T) {
	t.Parallel()

	rule(t, "KeepEveryField", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		bare := token(db, "1", models.ScopeAgentsRead)
		full := token(db, "2", models.ScopeAdmin, models.ScopeAgentsWrite)
		full.AgentID, full.Name = new("bills"), "jeton «é»"
		full.RotatedAt, full.ExpiresAt, full.RevokedAt = new(db.Now().Add(1)), new(db.Now().Add(time.Hour)), new(db.Now().Add(time.Minute))
		full.RotatedAt = new(full.RotatedAt.Truncate(time.Microsecond))
		save(t, db, bare, full)
		for _, want := range []models.Token{bare, full} {
			got, err := db.Tokens(t.Context()).Get(want.ID)
			require.NoError(t, err)
			require.Equal(t, want, got)
			got, _, err = db.Tokens(t.Context()).ByHash(want.Hash)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
	})

	rule(t, "SaveChangesTheTokenOfThatID", func(t *testing.T, db *storetest.DB) {
		save(t, db, token(db, "1", models.ScopeAdmin))
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Tokens().Lock("1")
			if err != nil {
				return err
			}
			got.RevokedAt, got.Hash = new(tx.Now()), sha256.Sum256([]byte("rotated"))
			return tx.Tokens().Save(got)
		})
		_, _, err := db.Tokens(t.Context()).ByHash(sha256.Sum256([]byte("1")))
		require.Equal(t, errs.NotFound, errs.CodeOf(err), "the old secret is gone")
		got, _, err := db.Tokens(t.Context()).ByHash(sha256.Sum256([]byte("rotated")))
		require.NoError(t, err)
		require.Equal(t, new(db.Now()), got.RevokedAt, "a revoked one is returned like any other")
	})

	rule(t, "ReportWhetherTheirAgentIsActive", func(t *testing.T, db *storetest.DB) {
		smallTree(t, db)
		retired := assistant(db, "retired", "finance")
		retired.IsActive = false
		insert(t, db, retired)
		for id, agent := range map[string]*string{"1": nil, "2": new("bills"), "3": new("retired")} {
			bound := token(db, id, models.ScopeAgentsRead)
			bound.AgentID = agent
			save(t, db, bound)
			_, active, err := db.Tokens(t.Context()).ByHash(bound.Hash)
			require.NoError(t, err)
			require.Equal(t, id != "3", active, id)
		}
	})

	rule(t, "AreNotFound", func(t *testing.T, db *storetest.DB) {
		save(t, db, token(db, "1", models.ScopeAdmin))
		_, err := db.Tokens(t.Context()).Get("2")
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		_, _, err = db.Tokens(t.Context()).ByHash([32]byte{})
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		write(t, db, func(tx *store.Tx) error {
			_, err := tx.Tokens().Lock("2")
			require.Equal(t, errs.NotFound, errs.CodeOf(err))
			return tx.Tokens().Save(token(db, "3")) // a row that is missing does not end the transaction
		})
		_, err = db.Tokens(t.Context()).Get("3")
		require.NoError(t, err)
	})

	rule(t, "ConflictOverASecretOrAnUnknownAgent", func(t *testing.T, db *storetest.DB) {
		save(t, db, token(db, "1", models.ScopeAdmin))
		same := token(db, "2", models.ScopeAdmin)
		same.Hash = sha256.Sum256([]byte("1"))
		unknown := token(db, "3", models.ScopeAdmin)
		unknown.AgentID = new("missing")
		for _, bad := range []models.Token{same, unknown} {
			err := db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tokens().Save(bad) })
			require.Equal(t, errs.Conflict, errs.CodeOf(err), bad.ID)
		}
	})

	rule(t, "PageByID", func(t *testing.T, db *storetest.DB) {
		var all []string
		for i := range 25 {
			id := fmt.Sprintf("%c-%02d", "aBc"[i%3], i)
			save(t, db, token(db, id, models.ScopeAdmin))
		}
		after := ""
		for {
			page, err := db.Tokens(t.Context()).List("", after, 10)
			require.NoError(t, err)
			require.NotNil(t, page)
			if len(page) == 0 {
				break
			}
			for _, x := range page {
				all = append(all, x.ID)
			}
			after = all[len(all)-1]
		}
		require.Len(t, all, 25)
		require.IsIncreasing(t, all)
	})
}

func TestAdminTokens(t *testing.T) {
	t.Parallel()

	rule(t, "AreUsable", func(t *testing.T, db *storetest.DB) {
		expired, revoked := token(db, "expired", models.ScopeAdmin), token(db, "revoked", models.ScopeAdmin)
		expired.ExpiresAt, revoked.RevokedAt = new(db.Now()), new(db.Now().Add(-time.Hour))
		later := token(db, "later", models.ScopeAgentsRead, models.ScopeAdmin)
		later.ExpiresAt = new(db.Now().Add(time.Microsecond))
		save(t, db, expired, revoked, later, token(db, "plain", models.ScopeAdmin), token(db, "reader", models.ScopeAgentsRead))
		write(t, db, func(tx *store.Tx) error {
			got, err := tx.Tokens().LockAdmins()
			require.NoError(t, err)
			require.Equal(t, []models.Token{later, token(db, "plain", models.ScopeAdmin)}, got)
			return nil
		})
	})

	rule(t, "CannotBothBeRevokedAtOnce", func(t *testing.T, db *storetest.DB) {
		errLast := errors.New("the last one")
		save(t, db, token(db, "a", models.ScopeAdmin), token(db, "b", models.ScopeAdmin))
		results := make(chan error, 2)
		for _, id := range []string{"a", "b"} {
			go func() {
				results <- db.Write(context.Background(), func(tx *store.Tx) error {
					admins, err := tx.Tokens().LockAdmins()
					if err != nil {
						return err
					}
					if len(admins) < 2 {
						return errLast
					}
					victim := token(db, id, models.ScopeAdmin)
					victim.RevokedAt = new(tx.Now())
					return tx.Tokens().Save(victim)
				})
			}()
		}
		require.ErrorIs(t, errors.Join(<-results, <-results), errLast)
		write(t, db, func(tx *store.Tx) error {
			admins, err := tx.Tokens().LockAdmins()
			require.Len(t, admins, 1)
			return err
		})
	})
}
