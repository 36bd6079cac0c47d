// Package storetest opens fresh databases for tests and holds the suite that
// every database must pass. SQLite is always there; PostgreSQL is used where
// COMET_TEST_POSTGRES_URL names a server on which databases may be created, and
// alone where COMET_TEST_SQLITE is "off".
package storetest

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"

	"comet/migrations"
	"comet/models"
	"comet/store"
)

// PostgresEnv names the environment variable with the URL of PostgreSQL's maintenance database. Its user
// should be a superuser: others can create databases, but not reuse them, which is slower.
const PostgresEnv = "COMET_TEST_POSTGRES_URL"

// SQLiteEnv names the environment variable that, where it is "off", leaves SQLite
// out of a run on PostgreSQL.
const SQLiteEnv = "COMET_TEST_SQLITE"

// DB is one fresh database, with the options that open it again.
type DB struct {
	*store.Store
	Options store.Options
	Clock   *Clock
}

// Run runs fn as a parallel subtest on every database, each time on a fresh one
// with an up-to-date schema and no rows.
func Run(t *testing.T, fn func(t *testing.T, db *DB)) {
	t.Helper()
	for _, name := range Databases() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fn(t, Open(t, name))
		})
	}
}

// Databases lists the databases of this run.
func Databases() []string {
	switch {
	case os.Getenv(PostgresEnv) == "":
		return []string{"sqlite"}
	case os.Getenv(SQLiteEnv) == "off":
		return []string{"postgres"}
	}
	return []string{"sqlite", "postgres"}
}

// Open returns a fresh database of that name; it ends with the test.
func Open(tb testing.TB, name string) *DB {
	tb.Helper()
	clock, opts := NewClock(), Migrated(tb, name)
	opts.Clock, opts.SkipMigrations = clock.Now, true
	s, err := store.Open(context.Background(), opts)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return &DB{Store: s, Options: opts, Clock: clock}
}

// Migrated returns what opens a fresh database of that name with an up-to-date schema and no
// rows; it ends with the test.
func Migrated(tb testing.TB, name string) store.Options {
	tb.Helper()
	opts := store.Options{Dir: tb.TempDir()}
	if name == "postgres" {
		opts.DatabaseURL, opts.MaxConnections = migratedPostgres(tb), 8
	} else {
		CopySQLite(tb, opts.Dir)
	}
	return opts
}

// Clock is a clock that a test moves.
type Clock struct {
	mu  sync.Mutex
	now time.Time
}

// NewClock returns a clock that shows the document's own time (CHE·NU §2.2).
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 1, 10, 15, 30, 0, 0, time.UTC)}
}

// Now returns the time the clock shows.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock by d.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// CopySQLite puts a copy of a migrated database into a directory, which is many times
// faster than migrating.
func CopySQLite(tb testing.TB, dir string) {
	tb.Helper()
	template, err := migratedSQLite()
	require.NoError(tb, err)
	require.NoError(tb, os.WriteFile(filepath.Join(dir, sqliteFile), template, 0o600))
}

// sqliteFile is the database that store.Options.Dir holds.
const sqliteFile = "comet.db"

//nolint:gochecknoglobals // made once, and then only copied
var migratedSQLite = sync.OnceValues(func() (file []byte, err error) {
	dir, err := os.MkdirTemp("", "comet-template")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	m, err := store.OpenMigrator(store.Options{Dir: dir})
	if err != nil {
		return nil, err
	}
	if _, err = m.Up(context.Background()); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if err = m.Close(); err != nil { // writes what the log of SQLite holds into the file
		return nil, err
	}
	return os.ReadFile(filepath.Join(dir, sqliteFile))
})

// EmptyPostgres returns the URL of a fresh database without any tables, for tests of a very first
// start; it is dropped at the end of the test. PostgresEnv must be set.
func EmptyPostgres(tb testing.TB) string {
	tb.Helper()
	db := openAdmin(tb)
	name := "comet_empty_" + uuid.NewString()[24:]
	require.NoError(tb, exec(db, fmt.Sprintf(`CREATE DATABASE "%s"`, name)))
	tb.Cleanup(func() { require.NoError(tb, exec(db, fmt.Sprintf(`DROP DATABASE IF EXISTS "%s" WITH (FORCE)`, name))) })
	return databaseURL(name)
}

// admin is the pool of connections to the maintenance database. It is open while a test uses it, because a new connection
// costs several milliseconds.
//
//nolint:gochecknoglobals // shared by the tests of a process
var admin struct {
	mu    sync.Mutex
	db    *sql.DB
	users int
}

// openAdmin returns the connections to the maintenance database until the test ends.
func openAdmin(tb testing.TB) *sql.DB {
	tb.Helper()
	admin.mu.Lock()
	defer admin.mu.Unlock()
	if admin.users == 0 {
		db, err := sql.Open("pgx", os.Getenv(PostgresEnv))
		require.NoError(tb, err)
		db.SetMaxIdleConns(16)
		admin.db = db
	}
	admin.users++
	tb.Cleanup(func() {
		admin.mu.Lock()
		defer admin.mu.Unlock()
		if admin.users--; admin.users == 0 {
			require.NoError(tb, admin.db.Close())
		}
	})
	return admin.db
}

// databaseURL returns the URL of a database of the server.
func databaseURL(name string) string {
	u, err := url.Parse(os.Getenv(PostgresEnv))
	if err != nil {
		return "" // a connection to the maintenance database has failed before
	}
	u.Path = "/" + name
	return u.String()
}

// migratedPostgres returns the URL of a database with an up-to-date schema and no rows. Databases
// stay on the server and are reused by later tests and by other processes, because a new one
// costs a quarter of a second of CPU time. An advisory lock reserves a database until the test ends.
func migratedPostgres(tb testing.TB) string {
	tb.Helper()
	ctx := context.Background()
	db := openAdmin(tb)
	template, err := migratedTemplate()
	require.NoError(tb, err)
	conn, err := db.Conn(ctx)
	require.NoError(tb, err)
	tb.Cleanup(func() {
		_, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock_all()")
		require.NoError(tb, errors.Join(err, conn.Close()))
	})
	var name string
	for n, locked := 0, false; !locked; n++ {
		name = fmt.Sprintf("comet_test_%s_%d", strings.TrimPrefix(template, "comet_template_"), n)
		require.NoError(tb, conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", name).Scan(&locked))
	}
	u := databaseURL(name)
	if !emptied(ctx, u) {
		require.NoError(tb, exec(db, fmt.Sprintf(`DROP DATABASE IF EXISTS "%s" WITH (FORCE)`, name)))
		require.NoError(tb, exec(db, fmt.Sprintf(`CREATE DATABASE "%s" TEMPLATE "%s"`, name, template)))
	}
	return u
}

// emptied removes what an earlier test left in the database, and reports whether that succeeded and
// its schema is up to date.
func emptied(ctx context.Context, databaseURL string) bool {
	db, err := sql.Open("pgx", databaseURL)
	if err != nil {
		return false
	}
	defer func() { _ = db.Close() }()
	for _, statement := range []string{
		`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`,
		`SELECT pg_stat_reset()`, // tests count deadlocks
		emptyTables,
	} {
		if _, err = db.ExecContext(ctx, statement); err != nil {
			return false
		}
	}
	return true
}

// fingerprint describes the tables, columns, indexes, constraints and triggers.
const fingerprint = `(SELECT md5(string_agg(part, ' ' ORDER BY part)) FROM
	(SELECT concat(relname, relkind) AS part FROM pg_class WHERE relnamespace = 'public'::regnamespace
	UNION ALL SELECT concat(relname, attnum, attname, atttypid, attnotnull) FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
		WHERE relnamespace = 'public'::regnamespace
	UNION ALL SELECT conname FROM pg_constraint WHERE connamespace = 'public'::regnamespace
	UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal
	UNION ALL SELECT concat(proname, prosrc) FROM pg_proc WHERE pronamespace = 'public'::regnamespace) AS parts)`

// keepRows copies the rows that migrations wrote into the schema "seed".
const keepRows = `DO $$ DECLARE t text; filled boolean; BEGIN
	CREATE SCHEMA seed;
	CREATE TABLE seed.schema AS SELECT ` + fingerprint + ` AS fingerprint;
	FOR t IN SELECT tablename FROM pg_tables WHERE schemaname = 'public' LOOP
		EXECUTE format('SELECT EXISTS (SELECT FROM public.%I)', t) INTO filled;
		IF filled THEN EXECUTE format('CREATE TABLE seed.%I AS TABLE public.%I', t, t); END IF;
	END LOOP;
END $$`

// emptyTables leaves only the rows that migrations wrote. It fails if a test has changed the schema. Small tables are emptied
// with DELETE, which is much cheaper than TRUNCATE; triggers and foreign keys are off meanwhile.
const emptyTables = `DO $$ DECLARE t regclass; BEGIN
	IF EXISTS (TABLE goose_db_version EXCEPT TABLE seed.goose_db_version)
	OR EXISTS (TABLE seed.goose_db_version EXCEPT TABLE goose_db_version) OR ` + fingerprint + ` <> (SELECT fingerprint FROM seed.schema) THEN
		RAISE 'the schema has changed';
	END IF;
	SET LOCAL session_replication_role = replica;
	FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' AND relname <> 'goose_db_version' AND pg_relation_size(oid) > 0 LOOP
		IF pg_relation_size(t) > 65536 THEN EXECUTE format('TRUNCATE %s CASCADE', t); ELSE EXECUTE format('DELETE FROM %s', t); END IF;
	END LOOP;
	PERFORM setval(format('public.%I', sequencename)::regclass, start_value, false) FROM pg_sequences WHERE schemaname = 'public' AND sequencename NOT LIKE 'goose%' AND last_value IS NOT NULL;
	FOR t IN SELECT oid FROM pg_class WHERE relnamespace = 'seed'::regnamespace AND relkind = 'r' AND relname NOT IN ('goose_db_version', 'schema') LOOP
		EXECUTE format('INSERT INTO public.%I SELECT * FROM %s', (SELECT relname FROM pg_class WHERE oid = t), t);
	END LOOP;
END $$`

// migratedTemplate returns the name of the template of this set of migrations, and makes it unless another process did.
//
//nolint:gochecknoglobals // made once
var migratedTemplate = sync.OnceValues(func() (name string, err error) {
	ctx := context.Background()
	hash, err := migrationsHash()
	if err != nil {
		return "", err
	}
	name = "comet_template_" + hash
	db, err := sql.Open("pgx", os.Getenv(PostgresEnv))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err = conn.ExecContext(ctx, "SELECT pg_advisory_lock(771)"); err != nil {
		return "", err
	}
	defer func() { _, _ = conn.ExecContext(ctx, "SELECT pg_advisory_unlock(771)") }()
	var exists bool
	err = conn.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)", name).Scan(&exists)
	if err != nil || exists {
		return name, err
	}
	return name, makeTemplate(db, name)
})

func makeTemplate(db *sql.DB, name string) error {
	raw := name + "_raw" // renamed when it is whole
	for _, statement := range []string{`DROP DATABASE IF EXISTS "%s" WITH (FORCE)`, `CREATE DATABASE "%s"`} {
		if err := exec(db, fmt.Sprintf(statement, raw)); err != nil {
			return err
		}
	}
	m, err := store.OpenMigrator(store.Options{DatabaseURL: databaseURL(raw)})
	if err != nil {
		return err
	}
	_, err = m.Up(context.Background())
	if err = errors.Join(err, m.Close()); err != nil {
		return err
	}
	migrated, err := sql.Open("pgx", databaseURL(raw))
	if err != nil {
		return err
	}
	if err = errors.Join(exec(migrated, keepRows), migrated.Close()); err != nil {
		return err
	}
	return exec(db, fmt.Sprintf(`ALTER DATABASE "%s" RENAME TO "%s"`, raw, name))
}

func migrationsHash() (string, error) {
	h := sha256.New()
	_, _ = h.Write([]byte(keepRows + emptyTables))
	err := fs.WalkDir(migrations.Postgres(), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(migrations.Postgres(), path)
		_, _ = fmt.Fprintf(h, "%s\n%s\n", path, text)
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)[:6]), err
}

func exec(db *sql.DB, query string) error {
	_, err := db.ExecContext(context.Background(), query)
	return err
}

// AddUsage adds tokens to the window of the hour that at lies in, as a fact of then would.
// path is the chain of ancestors from nova down to the agent, joined with "/".
func AddUsage(tx *store.Tx, agentID, path string, at time.Time, tokens int64) error {
	return tx.Ledger().AddToWindows([]models.Fact{{AgentID: agentID, At: at, Path: path, Tokens: tokens}})
}
