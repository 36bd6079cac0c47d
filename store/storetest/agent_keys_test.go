package storetest_test

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/signatures"
	"comet/store/storetest"
)

func TestAgentKeys(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		save := func(k models.AgentKey) error {
			return db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tokens().SaveAgentKey(k) })
		}
		insert(t, db, nova(db), orchestrator(db, "ada", 1), orchestrator(db, "bob", 2))
		_, err := db.Tokens(t.Context()).AgentKey("ada", "hmac-sha256")
		require.True(t, errs.Is(err, errs.NotFound), err)
		first := models.AgentKey{AgentID: "ada", KeyID: "1", Algorithm: "hmac-sha256", Secret: "clé ' | ü", CreatedAt: db.Now(), CreatedBy: "ops"}
		require.NoError(t, save(first))
		got, err := db.Tokens(t.Context()).AgentKey("ada", "hmac-sha256")
		require.NoError(t, err)
		require.Equal(t, first, got)

		db.Clock.Advance(time.Minute)
		second := models.AgentKey{AgentID: "ada", KeyID: "1", Algorithm: "hmac-sha256", Secret: "another one", Required: true, CreatedAt: db.Now(), CreatedBy: "ops2"}
		require.NoError(t, save(second))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) (err error) {
			got, err = tx.Tokens().AgentKey("ada", "hmac-sha256")
			return err
		}))
		require.Equal(t, second, got, "in the place of the one before")
		pinned := models.AgentKey{AgentID: "ada", KeyID: "2", Algorithm: "ed25519", Profile: "v1", PublicKey: "AAAA", CreatedAt: db.Now(), CreatedBy: "ops"}
		require.NoError(t, save(pinned))
		got, err = db.Tokens(t.Context()).AgentKey("ada", "ed25519")
		require.NoError(t, err)
		require.Equal(t, pinned, got, "beside the key of another algorithm")

		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tokens().DeleteAgentKey("ada", "hmac-sha256") }))
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error { return tx.Tokens().DeleteAgentKey("ada", "hmac-sha256") }), "twice is fine")
		err = db.Write(t.Context(), func(tx *store.Tx) error { _, err := tx.Tokens().AgentKey("ada", "hmac-sha256"); return err })
		require.True(t, errs.Is(err, errs.NotFound), err)
		require.True(t, errs.Is(save(models.AgentKey{AgentID: "missing", Algorithm: "hmac-sha256", Secret: "x"}), errs.Conflict))
	})
}

func TestSignatures(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const window = time.Hour
		note := func(agentID, mark string) (first bool) {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) (err error) {
				first, err = signatures.Record(tx, "v5", agentID, []byte(mark), []byte("digest"), db.Now().Add(-window))
				return err
			}))
			return first
		}
		purge := func(before time.Time, limit int) (n int64) {
			require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) (err error) { n, err = signatures.Purge(tx, before, limit); return err }))
			return n
		}
		require.True(t, note("ada", "\x00\xff"))
		require.False(t, note("ada", "\x00\xff"))
		require.True(t, note("ada", "\x00\xfe"))
		require.True(t, note("bob", "\x00\xff"), "of another agent")
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			first, err := signatures.Record(tx, "another", "bob", []byte("\x00\xff"), []byte{}, db.Now().Add(-window))
			require.True(t, first, "in another scope")
			return err
		}))
		require.EqualValues(t, 0, purge(db.Now(), 1))
		db.Clock.Advance(window)
		require.False(t, note("ada", "\x00\xff"), "for as long as the window")
		db.Clock.Advance(time.Microsecond)
		require.True(t, note("ada", "\x00\xff"), "and no longer, purged or not")
		require.False(t, note("ada", "\x00\xff"))
		require.EqualValues(t, 1, purge(db.Now(), 1))
		require.EqualValues(t, 2, purge(db.Now(), 100))
		require.Zero(t, purge(db.Now(), 100), "the one that is left is too new")
	})
}

// TestConcurrentSignatures: of a line that comes to several replicas at once, one is the first.
func TestConcurrentSignatures(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		const times = 16
		var all sync.WaitGroup
		firsts, failures := make([]bool, times), make([]error, times)
		since := db.Now().Add(-time.Hour)
		for i := range times {
			all.Go(func() {
				failures[i] = db.Write(t.Context(), func(tx *store.Tx) (err error) {
					firsts[i], err = signatures.Record(tx, "v5", "ada", []byte("mark"), []byte{}, since)
					return err
				})
			})
		}
		all.Wait()
		n := 0
		for i, first := range firsts {
			require.NoError(t, failures[i])
			if first {
				n++
			}
		}
		require.Equal(t, 1, n)
	})
}
