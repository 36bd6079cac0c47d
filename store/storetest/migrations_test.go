package storetest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/store"
	"comet/store/storetest"
)

func migrator(t *testing.T, db *storetest.DB) *store.Migrator {
	t.Helper()
	m, err := store.OpenMigrator(db.Options)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

func TestMigrations(t *testing.T) {
	t.Parallel()

	rule(t, "OfAFreshDatabaseAreAllApplied", func(t *testing.T, db *storetest.DB) {
		m := migrator(t, db)
		all, err := m.Status(t.Context())
		require.NoError(t, err)
		require.NotEmpty(t, all)
		for i, one := range all {
			require.True(t, i == 0 || one.Version > all[i-1].Version)
			require.NotNil(t, one.Applied)
			require.NotEmpty(t, one.Name)
		}
		applied, err := m.Up(t.Context())
		require.NoError(t, err)
		require.Empty(t, applied)
	})

	rule(t, "GoDownOneByOneAndUpAgain", func(t *testing.T, db *storetest.DB) {
		m := migrator(t, db)
		smallTree(t, db)
		all, err := m.Status(t.Context())
		require.NoError(t, err)
		for i := len(all) - 1; i >= 0; i-- {
			undone, err := m.Down(t.Context())
			require.NoError(t, err)
			require.Equal(t, []string{all[i].Name}, undone)
			now, err := m.Status(t.Context())
			require.NoError(t, err)
			require.Nil(t, now[i].Applied)
		}
		undone, err := m.Down(t.Context())
		require.NoError(t, err)
		require.Empty(t, undone, "there is nothing left to undo")
		_, err = db.Agents(t.Context()).Get("nova")
		require.Error(t, err)
		applied, err := m.Up(t.Context())
		require.NoError(t, err)
		require.Len(t, applied, len(all))
		requireAgent(t, db, "nova", false)
		smallTree(t, db)
		emit(t, db, "a")
		require.Equal(t, 1, effects(t, db), "the new tables work")
	})

	rule(t, "KeepTheKeysOfAgents", func(t *testing.T, db *storetest.DB) {
		insert(t, db, nova(db), orchestrator(db, "ada", 1))
		m := migrator(t, db)
		for name := ""; !strings.HasPrefix(name, "0025_"); {
			undone, err := m.Down(t.Context())
			require.NoError(t, err)
			name = undone[0]
		}
		type row struct {
			AgentID, Algorithm, Secret, PublicKey string
			Required                              bool
			CreatedAt                             int64
			CreatedBy                             string
		}
		const columns = "agent_id, algorithm, secret, public_key, required, created_at, created_by"
		before := []row{{"ada", "ed25519", "", "AAAA", false, 1, "ops"}, {"ada", "hmac-sha256", "sealed:1:x", "", true, 2, "ops"}, {"nova", "hmac-sha256", "y", "", false, 3, "ops"}}
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) (err error) {
			for _, r := range before {
				_, failed := tx.Exec("INSERT INTO agent_keys ("+columns+") VALUES (?, ?, ?, ?, ?, ?, ?)", r.AgentID, r.Algorithm, []byte(r.Secret), r.PublicKey, r.Required, r.CreatedAt, r.CreatedBy)
				err = errors.Join(err, failed)
			}
			_, failed := tx.Exec("INSERT INTO replay_marks (scope, agent_id, mark, at) VALUES ('v5', 'ada', ?, 1)", []byte("mark"))
			return errors.Join(err, failed)
		}))
		requireRows := func() {
			t.Helper()
			rows, err := store.Rows[row](db.Reads(t.Context()), "SELECT "+columns+" FROM agent_keys ORDER BY agent_id, algorithm")
			require.NoError(t, err)
			require.Equal(t, before, rows)
		}
		_, err := m.Up(t.Context())
		require.NoError(t, err)
		requireRows()
		ids, err := store.Rows[string](db.Reads(t.Context()), "SELECT DISTINCT key_id FROM agent_keys WHERE length(key_id) = 16")
		require.NoError(t, err)
		require.Len(t, ids, 3)
		key, err := db.Tokens(t.Context()).AgentKey("ada", "ed25519")
		require.NoError(t, err)
		require.Equal(t, []any{"v1", false, true}, []any{key.Profile, key.SignatureOnly, key.Live(db.Now())})
		marks, err := store.Row[int](db.Reads(t.Context()), "SELECT count(*) FROM replay_marks WHERE length(digest) = 0")
		require.NoError(t, err)
		require.Equal(t, 1, marks)
		for name := ""; !strings.HasPrefix(name, "0025_"); {
			undone, err := m.Down(t.Context())
			require.NoError(t, err)
			name = undone[0]
		}
		requireRows()
		_, err = m.Up(t.Context())
		require.NoError(t, err)
		requireRows()
	})

	rule(t, "AreAppliedWhenTheStoreIsOpened", func(t *testing.T, db *storetest.DB) {
		m := migrator(t, db)
		_, err := m.Down(t.Context())
		require.NoError(t, err)
		opts := db.Options
		opts.SkipMigrations = false
		s, err := store.Open(t.Context(), opts)
		require.NoError(t, err)
		require.NoError(t, s.Close())
		applied, err := m.Up(t.Context())
		require.NoError(t, err)
		require.Empty(t, applied)
	})
}

func TestSchemaOfANewerProgramIsRefused(t *testing.T) {
	t.Parallel()
	rule(t, "ByUpAndOpen", func(t *testing.T, db *storetest.DB) {
		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, ?)", true)
			return err
		}))
		_, err := migrator(t, db).Up(t.Context())
		require.ErrorContains(t, err, "is 999, but this program supports schemas up to")
		require.Equal(t, errs.Conflict, errs.CodeOf(err))
		opts := db.Options
		opts.SkipMigrations = false
		_, err = store.Open(t.Context(), opts)
		require.ErrorContains(t, err, "use a newer comet")
	})
}

// TestUnusableFile starts with files that are no databases; the errors name the file and a remedy.
func TestUnusableFile(t *testing.T) {
	t.Parallel()
	text := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(text, "comet.db"), []byte(strings.Repeat("not a database ", 20)), 0o600))
	_, err := store.Open(t.Context(), store.Options{Dir: text})
	require.ErrorContains(t, err, filepath.Join(text, "comet.db")+" is not a database: restore a backup")
	dir := t.TempDir()
	path := filepath.Join(dir, "comet.db")
	require.NoError(t, os.Mkdir(path, 0o700))
	_, err = store.Open(t.Context(), store.Options{Dir: dir})
	require.ErrorContains(t, err, "the database "+path+" cannot be opened: check the owner")
	_, err = store.Open(t.Context(), store.Options{DatabaseURL: "postgres://user:secret@127.0.0.1:1/comet"})
	require.ErrorContains(t, err, "PostgreSQL cannot be reached at 127.0.0.1; check --database-url")
	require.NotContains(t, err.Error(), "secret")
}

func TestReplicasMigrateTogether(t *testing.T) {
	t.Parallel()
	overlapping(t, "UnderALock", func(t *testing.T, db *storetest.DB) {
		_, err := migrator(t, db).Down(t.Context())
		require.NoError(t, err)
		results := make(chan error, 3)
		for range cap(results) {
			m := migrator(t, db)
			go func() {
				_, err := m.Up(context.Background())
				results <- err
			}()
		}
		require.NoError(t, errors.Join(<-results, <-results, <-results))
		requireAgent(t, db, "nova", false)
	})
}
