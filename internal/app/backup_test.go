package app_test

import (
	"database/sql"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/app"
	"comet/internal/config"
	"comet/internal/errs"
	"comet/store/sqlitefile"
	"comet/store/storetest"
)

// TestBackupBesideARunningServer makes backups of a server that many clients write to. Each must
// hold every agent that was acknowledged before the backup began.
func TestBackupBesideARunningServer(t *testing.T) {
	t.Parallel()
	data, dir := t.TempDir(), t.TempDir()
	p := serve(t, data)
	c := newClient(t, p.url(t), adminToken(t, data))
	s := &stream{acknowledged: map[string]draft{}, attempted: map[string]draft{}}
	done := s.flow(t, c, 0)
	before := map[string]map[string]draft{} // by the path of the backup
	for _, name := range []string{"first.db", "second.db"} {
		path, target := filepath.Join(dir, name), s.count.Load()+50
		eventually(t, func() bool { return s.count.Load() >= target }, "the server acknowledges writes")
		s.mu.Lock()
		before[path] = maps.Clone(s.acknowledged)
		s.mu.Unlock()
		b := start(t, []string{"backup", "--data", data, "--output", path})
		require.Zero(t, b.exit(t), "%s", &b.log)
	}
	p.kill()
	done()

	for path, acknowledged := range before {
		restored := filepath.Join(t.TempDir(), "restored")
		r := start(t, []string{"restore", path, "--data", restored})
		require.Zero(t, r.exit(t), "%s", &r.log)
		key, err := os.ReadFile(filepath.Join(data, "secret.key")) // it is kept apart from the backups
		require.NoError(t, err)
		put(t, filepath.Join(restored, "secret.key"), string(key))
		p := serve(t, restored)
		kept := &stream{acknowledged: acknowledged, attempted: s.attempted}
		kept.requireKept(t, newClient(t, p.url(t), c.Token))
		p.stop(t)
	}
}

// marked returns a configuration whose data directory holds a database with a mark.
func marked(t *testing.T, mark string) config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Data = storetest.Migrated(t, "sqlite").Dir
	db := sqliteFile(t, sqlitefile.Path(cfg.Data))
	_, err := db.ExecContext(t.Context(), "INSERT INTO idempotency (principal, key, request_hash, created_at) VALUES ('mark', ?, x'00', 0)", mark)
	require.NoError(t, err)
	require.NoError(t, db.Close())
	return cfg
}

// requireMark requires that a database file, without any log, holds a mark.
func requireMark(t *testing.T, path, want string) {
	t.Helper()
	require.NoFileExists(t, path+"-wal")
	db := sqliteFile(t, path)
	var mark string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT key FROM idempotency WHERE principal = 'mark'").Scan(&mark))
	require.Equal(t, want, mark)
	require.NoError(t, db.Close())
}

func sqliteFile(t *testing.T, path string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	return db
}

// backedUp makes a backup of a marked database and returns its path.
func backedUp(t *testing.T, mark string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), mark+".db")
	_, err := app.Backup(t.Context(), marked(t, mark), path, false)
	require.NoError(t, err)
	return path
}

// requireFiles requires that a directory holds these files, and the lock that Restore makes.
func requireFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if e.Name() != "comet.lock" {
			names = append(names, e.Name())
		}
	}
	slices.Sort(want)
	require.Equal(t, want, names)
}

func put(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
}

func requireText(t *testing.T, path, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, want, string(text))
}

func TestBackup(t *testing.T) {
	t.Parallel()

	t.Run("only its owner can read it", func(t *testing.T) {
		t.Parallel()
		path := backedUp(t, "one")
		file, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), file.Mode().Perm())
		requireMark(t, path, "one")
		requireFiles(t, filepath.Dir(path), "one.db")
	})

	t.Run("an existing file is replaced with force only", func(t *testing.T) {
		t.Parallel()
		cfg, path := marked(t, "one"), filepath.Join(t.TempDir(), "file")
		put(t, path, "precious")
		_, err := app.Backup(t.Context(), cfg, path, false)
		require.Equal(t, errs.Conflict, errs.CodeOf(err), err)
		require.ErrorContains(t, err, "--force")
		requireText(t, path, "precious")
		_, err = app.Backup(t.Context(), cfg, path, true)
		require.NoError(t, err)
		requireMark(t, path, "one")
		requireFiles(t, filepath.Dir(path), "file")
	})

	t.Run("a damaged database leaves nothing", func(t *testing.T) {
		t.Parallel()
		cfg, dir := marked(t, "one"), t.TempDir()
		require.NoError(t, os.Truncate(sqlitefile.Path(cfg.Data), 100<<10))
		_, err := app.Backup(t.Context(), cfg, filepath.Join(dir, "file"), false)
		require.ErrorContains(t, err, "malformed")
		requireFiles(t, dir)
	})

	t.Run("a schema that this program does not know leaves nothing", func(t *testing.T) {
		t.Parallel()
		cfg, dir := marked(t, "one"), t.TempDir()
		db := sqliteFile(t, sqlitefile.Path(cfg.Data))
		_, err := db.ExecContext(t.Context(), "INSERT INTO goose_db_version (version_id, is_applied) VALUES (999, true)")
		require.NoError(t, err)
		require.NoError(t, db.Close())
		_, err = app.Backup(t.Context(), cfg, filepath.Join(dir, "file"), false)
		require.ErrorContains(t, err, "its schema is 999")
		requireFiles(t, dir)
	})

	for name, c := range map[string]struct {
		path string // below a data directory
		code errs.Code
		text string
	}{
		"the database itself":           {"comet.db", errs.Conflict, "the database itself"},
		"a database that is in use":     {"used", errs.Conflict, "in use"},
		"a directory":                   {"dir", errs.Conflict, "not a file"},
		"a link":                        {"link", errs.Conflict, "not a file"},
		"a directory that is not there": {"missing/file", errs.NotFound, "missing does not exist"},
	} {
		t.Run("it does not replace "+name, func(t *testing.T) {
			t.Parallel()
			cfg := marked(t, "one")
			require.NoError(t, os.Mkdir(filepath.Join(cfg.Data, "dir"), 0o700))
			require.NoError(t, os.Symlink("comet.db", filepath.Join(cfg.Data, "link")))
			put(t, filepath.Join(cfg.Data, "used"), "")
			put(t, filepath.Join(cfg.Data, "used-wal"), "")
			_, err := app.Backup(t.Context(), cfg, filepath.Join(cfg.Data, c.path), true)
			require.Equal(t, c.code, errs.CodeOf(err), err)
			require.ErrorContains(t, err, c.text)
			requireFiles(t, cfg.Data, "comet.db", "dir", "link", "used", "used-wal")
			requireMark(t, sqlitefile.Path(cfg.Data), "one")
		})
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()

	t.Run("a new directory", func(t *testing.T) {
		t.Parallel()
		cfg := config.Default()
		cfg.Data = filepath.Join(t.TempDir(), "new")
		report, err := app.Restore(t.Context(), cfg, backedUp(t, "one"), false)
		require.NoError(t, err)
		require.Empty(t, report.Former)
		requireMark(t, report.Database, "one")
		requireFiles(t, cfg.Data, "comet.db")
		file, err := os.Stat(report.Database)
		require.NoError(t, err)
		require.Equal(t, os.FileMode(0o600), file.Mode().Perm())
	})

	t.Run("a database is replaced with force only, and kept", func(t *testing.T) {
		t.Parallel()
		cfg, path := marked(t, "former"), backedUp(t, "one")
		_, err := app.Restore(t.Context(), cfg, path, false)
		require.Equal(t, errs.Conflict, errs.CodeOf(err), err)
		require.ErrorContains(t, err, "--force")
		requireMark(t, sqlitefile.Path(cfg.Data), "former")
		requireFiles(t, cfg.Data, "comet.db")

		report, err := app.Restore(t.Context(), cfg, path, true)
		require.NoError(t, err)
		requireMark(t, report.Database, "one")
		requireMark(t, report.Former, "former")
		require.True(t, strings.HasPrefix(report.Former, report.Database+".before-restore-"), report.Former)
		requireFiles(t, cfg.Data, "comet.db", filepath.Base(report.Former))
		requireMark(t, path, "one")
	})

	t.Run("a killed server has left a log", func(t *testing.T) {
		t.Parallel()
		cfg := config.Default()
		cfg.Data = t.TempDir()
		p := serve(t, cfg.Data)
		p.url(t)
		p.kill()
		require.FileExists(t, sqlitefile.Path(cfg.Data)+"-wal")
		report, err := app.Restore(t.Context(), cfg, backedUp(t, "one"), true)
		require.NoError(t, err)
		requireMark(t, report.Database, "one")
		require.NoFileExists(t, report.Former+"-wal")
		var agents int
		former := sqliteFile(t, report.Former)
		require.NoError(t, former.QueryRowContext(t.Context(), "SELECT count(*) FROM agents").Scan(&agents))
		require.NoError(t, former.Close())
		require.Equal(t, 10, agents)
	})

	t.Run("a damaged database is kept, and its logs are gone", func(t *testing.T) {
		t.Parallel()
		cfg := config.Default()
		cfg.Data = t.TempDir()
		database := sqlitefile.Path(cfg.Data)
		for _, suffix := range []string{"", "-wal", "-shm", "-journal"} {
			put(t, database+suffix, strings.Repeat("garbage"+suffix, 1000))
		}
		report, err := app.Restore(t.Context(), cfg, backedUp(t, "one"), true)
		require.NoError(t, err)
		requireMark(t, report.Database, "one")
		requireText(t, report.Former, strings.Repeat("garbage", 1000))
		for _, suffix := range []string{"-wal", "-shm", "-journal"} { // they would be applied to the restored database
			require.NoFileExists(t, database+suffix)
		}
	})

	t.Run("a log without a database is moved away", func(t *testing.T) {
		t.Parallel()
		cfg := marked(t, "former")
		database := sqlitefile.Path(cfg.Data)
		require.NoError(t, os.Remove(database))
		put(t, database+"-wal", "log")
		report, err := app.Restore(t.Context(), cfg, backedUp(t, "one"), false)
		require.NoError(t, err)
		require.Empty(t, report.Former)
		requireMark(t, database, "one")
	})

	t.Run("a database that another process uses is not replaced", func(t *testing.T) {
		t.Parallel()
		cfg := marked(t, "former")
		db := sqliteFile(t, sqlitefile.Path(cfg.Data)+"?_pragma=journal_mode(WAL)")
		require.NoError(t, db.PingContext(t.Context()))
		_, err := app.Restore(t.Context(), cfg, backedUp(t, "one"), true)
		require.Equal(t, errs.Conflict, errs.CodeOf(err), err)
		require.NoError(t, db.Close())
		requireMark(t, sqlitefile.Path(cfg.Data), "former")
		requireFiles(t, cfg.Data, "comet.db")
	})

	t.Run("the database of a running server is not replaced", func(t *testing.T) {
		t.Parallel()
		cfg := config.Default()
		cfg.Data = t.TempDir()
		p := serve(t, cfg.Data)
		p.url(t)
		_, err := app.Restore(t.Context(), cfg, backedUp(t, "one"), true)
		require.Equal(t, errs.Conflict, errs.CodeOf(err), err)
		require.ErrorContains(t, err, cfg.Data)
		require.ErrorContains(t, err, "--data")
		p.stop(t)
		requireFiles(t, cfg.Data, "admin.token", "comet.db", "secret.key")
	})

	t.Run("a symbolic link is not replaced", func(t *testing.T) {
		t.Parallel()
		cfg, other := config.Default(), marked(t, "other")
		cfg.Data = t.TempDir()
		require.NoError(t, os.Symlink(sqlitefile.Path(other.Data), sqlitefile.Path(cfg.Data)))
		_, err := app.Restore(t.Context(), cfg, backedUp(t, "one"), true)
		require.Equal(t, errs.Conflict, errs.CodeOf(err), err)
		requireMark(t, sqlitefile.Path(other.Data), "other")
	})

	t.Run("a file that is not a backup changes nothing", func(t *testing.T) {
		t.Parallel()
		cfg := marked(t, "former")
		path := filepath.Join(t.TempDir(), "file")
		put(t, path, "text")
		_, err := app.Restore(t.Context(), cfg, path, true)
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err), err)
		require.ErrorContains(t, err, path)
		_, err = app.Restore(t.Context(), cfg, path+"-missing", true)
		require.Equal(t, errs.NotFound, errs.CodeOf(err), err)
		requireMark(t, sqlitefile.Path(cfg.Data), "former")
		requireFiles(t, cfg.Data, "comet.db")
	})
}
