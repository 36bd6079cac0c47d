package auth_test

import (
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/events"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

// replicas are servers that start at the same moment on one database.
func replicas(t *testing.T, db *storetest.DB, ensure func(i int, a *auth.Auth) (made bool, err error)) []int {
	t.Helper()
	var mu sync.Mutex
	var wg, ready sync.WaitGroup
	makers := []int{}
	ready.Add(6)
	for i := range 6 {
		wg.Go(func() {
			if _, err := auth.New(db.Store, nil).HasAdmin(t.Context()); err != nil { // the first replica to look finds none
				t.Errorf("replica %d: %v", i, err)
			}
			ready.Done()
			ready.Wait()
			made, err := ensure(i, auth.New(db.Store, nil))
			if err != nil {
				t.Errorf("replica %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			if made {
				makers = append(makers, i)
			}
		})
	}
	wg.Wait()
	return makers
}

func secretOf(i int) string { return strings.Repeat(string(rune('a'+i)), 32) }

func TestBootstrapAdmin(t *testing.T) {
	t.Parallel()

	t.Run("OfManyFirstStartsOneMakesTheToken", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			makers := replicas(t, db, func(i int, a *auth.Auth) (bool, error) { return a.EnsureAdmin(t.Context(), secretOf(i), false) })
			require.Len(t, makers, 1, "only one token is shown")
			for i := range 6 {
				p, err := auth.New(db.Store, nil).Verify(t.Context(), secretOf(i))
				if i == makers[0] {
					require.NoError(t, err, "and it is the one that works")
					require.Equal(t, models.Principal{TokenID: auth.BootstrapTokenID, Name: auth.BootstrapTokenID, Scopes: []models.Scope{models.ScopeAdmin}}, p)
					continue
				}
				require.Equal(t, errs.Unauthenticated, errs.CodeOf(err))
			}
			require.Equal(t, []models.EventType{events.TokenCreated}, tokenEvents(t, db))
		})
	})

	t.Run("ManyMayStartWithTheSameConfiguredToken", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			ensure := func(secret string) []int {
				return replicas(t, db, func(_ int, a *auth.Auth) (bool, error) { return a.EnsureAdmin(t.Context(), secret, true) })
			}
			require.Len(t, ensure(secretOf(0)), 1)
			require.Len(t, ensure(secretOf(1)), 1, "a changed one takes its place once")
			require.Empty(t, ensure(secretOf(1)))
			_, err := auth.New(db.Store, nil).Verify(t.Context(), secretOf(0))
			require.Equal(t, errs.Unauthenticated, errs.CodeOf(err))
			_, err = auth.New(db.Store, nil).Verify(t.Context(), secretOf(1))
			require.NoError(t, err)
			require.Equal(t, []models.EventType{events.TokenCreated, events.TokenRotated}, tokenEvents(t, db))
		})
	})

	t.Run("WithAnAdminTokenNoneIsCreated", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			a := auth.New(db.Store, nil)
			_, err := a.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("chief"), Scopes: []models.Scope{models.ScopeAdmin}}, nil)
			require.NoError(t, err)
			made, err := a.EnsureAdmin(t.Context(), secretOf(0), false)
			require.NoError(t, err)
			require.False(t, made)
			made, err = a.EnsureAdmin(t.Context(), secretOf(0), true)
			require.NoError(t, err)
			require.True(t, made, "a configured one is always stored")
		})
	})
}

// tokenEvents are the types of the events about tokens, in order.
func tokenEvents(t *testing.T, db *storetest.DB) []models.EventType {
	t.Helper()
	require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { _, _, err := tx.Events().Number(1000); return err }))
	events, err := db.Events(t.Context()).After(0, 100)
	require.NoError(t, err)
	kinds := []models.EventType{}
	for _, e := range events {
		kinds = append(kinds, e.Type)
	}
	return kinds
}
