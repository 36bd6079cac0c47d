package store

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/url"
	"sync"

	gormsqlite "gorm.io/driver/sqlite"
	"modernc.org/sqlite" // the pure Go driver

	"comet/store/cache"
	"comet/store/eventlog"
	"comet/store/pinned"
	"comet/store/sqlitefile"
)

func sqliteDSN(dir string, pragmas ...string) string {
	q := url.Values{"_txlock": {"immediate"}, "_time_format": {"sqlite"}, "_timezone": {"UTC"}}
	for _, p := range append([]string{
		"busy_timeout(10000)",
		"journal_mode(WAL)",
		"synchronous(FULL)",
		"foreign_keys(1)",
		"mmap_size(268435456)",
		"cache_size(-32768)",
		"temp_store(memory)",
		"wal_autocheckpoint(4000)",
	}, pragmas...) {
		q.Add("_pragma", p)
	}
	return sqlitefile.URI(sqlitefile.Path(dir), q)
}

// openSQLitePool opens connections to a database whose file sqlitefile.Create has created.
func openSQLitePool(opts Options, size int, pragmas ...string) (*sql.DB, error) {
	if err := registerFunctions(); err != nil {
		return nil, err
	}
	connector, err := sqlite.NewConnector(sqliteDSN(opts.Dir, pragmas...))
	if err != nil {
		return nil, fmt.Errorf("open SQLite: %w", err)
	}
	db := opts.openPool(connector)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	return db, nil
}

// registerFunctions registers the SQL functions of migrations, once for all connections: sha256, as
// PostgreSQL has it.
//
//nolint:gochecknoglobals // runs once in a process
var registerFunctions = sync.OnceValue(func() error {
	return sqlite.RegisterDeterministicScalarFunction("sha256", 1, func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
		sum := sha256.Sum256(fmt.Append(nil, args[0]))
		return sum[:], nil
	})
})

func (s *Store) openSQLite(ctx context.Context, opts Options) error {
	s.engine = sqliteEngine()
	var err error
	if s.cache, err = cache.New(); err != nil {
		return err
	}
	if err := sqlitefile.Create(opts.Dir); err != nil {
		return err
	}
	writeDB, err := openSQLitePool(opts, 1)
	if err != nil {
		return err
	}
	conn, err := pinned.New(ctx, writeDB)
	if err != nil {
		_ = writeDB.Close()
		return fmt.Errorf("open %s: %w", sqlitefile.Path(opts.Dir), err)
	}
	if s.reads, err = openSQLitePool(opts, opts.ReadConnections, "query_only(1)", "temp_store(file)"); err != nil {
		return err
	}
	if s.orm, err = openORM(gormsqlite.New(gormsqlite.Config{DriverName: "sqlite", Conn: readPool{s.reads, s}})); err != nil {
		return err
	}
	s.events = &eventlog.Log{}
	if err := s.loadMemory(s.on(ctx)); err != nil {
		return err
	}
	s.writes = newGroupWriter(s, conn)
	return nil
}
