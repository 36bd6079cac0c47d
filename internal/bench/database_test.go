package bench

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"comet/store"
	"comet/store/storetest"
)

const (
	sqlite   = "sqlite"
	postgres = "postgres"
)

const (
	// readConnections is the size of the read pools of the store and of the raw handlers.
	readConnections = 4
	// postgresConnections is the size of the store's pool. Three quarters of it are for writers;
	// the baselines have as many.
	postgresConnections = 20
	postgresWriters     = postgresConnections * 3 / 4
)

// testDatabase is a fresh database with a running clock.
type testDatabase struct {
	database string
	clock    func() time.Time
	options  store.Options
}

// newDatabase creates a database whose clock starts at day().
func newDatabase(b *testing.B, database string) testDatabase {
	b.Helper()
	db := storetest.Open(b, database)
	require.NoError(b, db.Close()) // its clock is fixed and its pool small
	started := time.Now()
	g := testDatabase{database: database, clock: func() time.Time { return day().Add(time.Since(started)) }, options: db.Options}
	g.options.Clock, g.options.ReadConnections, g.options.MaxConnections = g.clock, readConnections, postgresConnections
	return g
}

// eachDatabase runs a benchmark on every configured database.
func eachDatabase(b *testing.B, run func(b *testing.B, database string)) {
	b.Helper()
	for _, database := range storetest.Databases() {
		b.Run(database, func(b *testing.B) { run(b, database) })
	}
}

// file returns the path of the SQLite file.
func (g testDatabase) file() string { return filepath.Join(g.options.Dir, "comet.db") }

// raw opens a pool for the baselines, with the store's settings.
func (g testDatabase) raw(b *testing.B, size int, pragmas ...string) *sql.DB {
	b.Helper()
	driver, source := "pgx", g.options.DatabaseURL
	if g.database == sqlite {
		all := append([]string{
			"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "mmap_size(268435456)",
			"cache_size(-32768)", "temp_store(memory)", "wal_autocheckpoint(4000)",
		}, pragmas...)
		driver, source = "sqlite", "file:"+g.file()+"?_txlock=immediate&_pragma="+strings.Join(all, "&_pragma=")
	}
	db, err := sql.Open(driver, source)
	require.NoError(b, err)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	b.Cleanup(func() { _ = db.Close() })
	return db
}

// bind replaces ? placeholders by those of the database.
func (g testDatabase) bind(query string) string {
	if g.database == sqlite {
		return query
	}
	var out strings.Builder
	for i, part := range strings.Split(query, "?") {
		if i > 0 {
			out.WriteString("$" + strconv.Itoa(i))
		}
		out.WriteString(part)
	}
	return out.String()
}

// logFile returns a file that is removed after the benchmark.
func logFile(b *testing.B) *os.File {
	b.Helper()
	file, err := os.Create(filepath.Join(b.TempDir(), "access.log"))
	require.NoError(b, err)
	b.Cleanup(func() { _ = file.Close() })
	return file
}

// durability states how the databases of a run make commits durable, and what a sync of their disk
// takes: absolute figures depend on both.
func durability(b *testing.B) string {
	b.Helper()
	file, err := os.Create(filepath.Join(b.TempDir(), "sync"))
	require.NoError(b, err)
	defer func() { _ = file.Close() }()
	took, block := make([]float64, 51), make([]byte, 8192)
	for i := range took {
		_, err := file.WriteAt(block, 0)
		require.NoError(b, err)
		start := time.Now()
		require.NoError(b, file.Sync())
		took[i] = time.Since(start).Seconds() * 1e3
	}
	median, _, _ := quartiles(func(i int) float64 { return took[i] }, len(took))
	text := fmt.Sprintf("SQLite with synchronous=FULL; a sync of 8 kB takes %.2f ms.", median)
	for _, database := range storetest.Databases() {
		if database == postgres {
			db := storage{database: postgres, url: os.Getenv(storetest.PostgresEnv)}.testDatabase().raw(b, 1)
			var sync, commit string
			require.NoError(b, db.QueryRowContext(detached(), "SELECT current_setting('fsync'), current_setting('synchronous_commit')").Scan(&sync, &commit))
			text += fmt.Sprintf(" PostgreSQL with fsync=%s, synchronous_commit=%s.", sync, commit)
		}
	}
	return text
}

// detached returns the context of statements and transactions that outlive a request.
func detached() context.Context { return context.Background() }
