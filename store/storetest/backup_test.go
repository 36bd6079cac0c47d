package storetest_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/migrations"
	"comet/store"
	"comet/store/sqlitefile"
	"comet/store/storetest"
)

// openFile opens a SQLite file past the store.
func openFile(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

// change opens a SQLite file, runs a statement and closes the file.
func change(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), statement)
	require.NoError(t, err)
	require.NoError(t, db.Close())
}

func TestBackup(t *testing.T) {
	t.Parallel()

	t.Run("it holds every write that was acknowledged before, and none in part", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t, "sqlite")
		insert(t, db, nova(db))
		insert(t, db, orchestrator(db, "before", 1))
		var writers sync.WaitGroup
		stop, begun := make(chan struct{}), make(chan struct{}, 1)
		writers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				err := db.Write(t.Context(), func(tx *store.Tx) error { // two agents or none
					if err := tx.Agents().Insert(specialist(db, fmt.Sprintf("s-%d", n), "before")); err != nil {
						return err
					}
					return tx.Agents().Insert(assistant(db, fmt.Sprintf("a-%d", n), fmt.Sprintf("s-%d", n)))
				})
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case begun <- struct{}{}:
				default:
				}
			}
		})
		<-begun
		copied := filepath.Join(t.TempDir(), "copy.db")
		err := sqlitefile.Backup(t.Context(), db.Options.Dir, copied)
		close(stop)
		writers.Wait()
		require.NoError(t, err)

		info, err := sqlitefile.Verify(t.Context(), copied)
		require.NoError(t, err)
		require.Equal(t, migrations.Newest("sqlite"), info.Schema)
		file, err := os.Stat(copied)
		require.NoError(t, err)
		require.Equal(t, file.Size(), info.Bytes)
		var before, specialists, assistants int
		require.NoError(t, openFile(t, copied).QueryRowContext(t.Context(), `SELECT count(*) FILTER (WHERE id IN ('nova', 'before')),
			count(*) FILTER (WHERE level = 2), count(*) FILTER (WHERE level = 3) FROM agents`).Scan(&before, &specialists, &assistants))
		require.Equal(t, 2, before)
		require.Positive(t, specialists)
		require.Equal(t, specialists, assistants)
	})

	t.Run("a directory without a database is not found, and gets none", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		require.Equal(t, errs.NotFound, errs.CodeOf(sqlitefile.Backup(t.Context(), dir, filepath.Join(t.TempDir(), "copy.db"))))
		require.NoFileExists(t, sqlitefile.Path(dir))
	})

	t.Run("a name with characters of a URI is a name", func(t *testing.T) {
		t.Parallel()
		db := storetest.Open(t, "sqlite")
		path := filepath.Join(t.TempDir(), "a?mode=memory&b=%20#c é")
		require.NoError(t, sqlitefile.Backup(t.Context(), db.Options.Dir, path))
		require.FileExists(t, path)
		_, err := sqlitefile.Verify(t.Context(), path)
		require.NoError(t, err)
	})
}

func TestVerifyBackup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil  func(t *testing.T, path string)
		code   errs.Code
		detail string
	}{
		"a missing file": {func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) }, errs.NotFound, "does not exist"},
		"a directory": {func(t *testing.T, path string) {
			require.NoError(t, os.Remove(path))
			require.NoError(t, os.Mkdir(path, 0o700))
		}, errs.InvalidRequest, "not a file"},
		"an empty file":   {func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) }, errs.InvalidRequest, "not a database of comet"},
		"half of a file":  {func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 64<<10)) }, errs.InvalidRequest, "damaged"},
		"a file of text":  {func(t *testing.T, path string) { writeFile(t, path, bytes.Repeat([]byte("text "), 1000)) }, errs.InvalidRequest, "not a database"},
		"another program": {func(t *testing.T, path string) { change(t, path, "DROP TABLE events") }, errs.InvalidRequest, "not a database of comet"},
		"a newer schema": {func(t *testing.T, path string) {
			change(t, path, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)")
		}, errs.InvalidRequest, "its schema is 999"},
		"a page of garbage": {func(t *testing.T, path string) {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			require.NoError(t, err)
			_, err = file.WriteAt(bytes.Repeat([]byte("garbage!"), 512), 5*4096)
			require.NoError(t, err)
			require.NoError(t, file.Close())
		}, errs.InvalidRequest, "damaged"},
		"a log beside it":        {func(t *testing.T, path string) { writeFile(t, path+"-wal", []byte("log")) }, errs.InvalidRequest, "incomplete"},
		"an empty log beside it": {func(t *testing.T, path string) { writeFile(t, path+"-wal", nil) }, "", ""},
		"nothing":                {func(*testing.T, string) {}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := storetest.Open(t, "sqlite")
			insert(t, db, nova(db))
			path := filepath.Join(t.TempDir(), "copy.db")
			require.NoError(t, sqlitefile.Backup(t.Context(), db.Options.Dir, path))
			c.spoil(t, path)
			_, err := sqlitefile.Verify(t.Context(), path)
			require.Equal(t, c.code, errs.CodeOf(err), "%v", err)
			if err != nil {
				require.Contains(t, errs.From(err).Detail, c.detail)
			}
		})
	}
}

func TestFoldLog(t *testing.T) {
	t.Parallel()
	opts := storetest.Migrated(t, "sqlite")
	opts.SkipMigrations = true
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	other := openFile(t, sqlitefile.Path(opts.Dir))
	var agents int
	require.NoError(t, other.QueryRowContext(t.Context(), "SELECT count(*) FROM agents").Scan(&agents))
	require.NoError(t, s.Write(t.Context(), func(tx *store.Tx) error {
		return tx.Agents().Insert(nova(&storetest.DB{Store: s}))
	}))
	require.NoError(t, s.Close())
	require.FileExists(t, sqlitefile.Path(opts.Dir)+"-wal")
	require.Equal(t, errs.Busy, errs.CodeOf(sqlitefile.FoldLog(t.Context(), opts.Dir)), "it is open elsewhere")

	require.NoError(t, other.Close())
	require.NoError(t, sqlitefile.FoldLog(t.Context(), opts.Dir))
	require.NoFileExists(t, sqlitefile.Path(opts.Dir)+"-wal")
	require.NoFileExists(t, sqlitefile.Path(opts.Dir)+"-shm")
	require.NoError(t, openFile(t, sqlitefile.Path(opts.Dir)+"?mode=ro").QueryRowContext(t.Context(), "SELECT count(*) FROM agents").Scan(&agents))
	require.Equal(t, 1, agents)
}

func writeFile(t *testing.T, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, content, 0o600))
}
