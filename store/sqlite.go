package store

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	gormsqlite "gorm.io/driver/sqlite"
	"modernc.org/sqlite" // the pure Go driver
)

// sqliteFile is the database's name inside the data directory.
const sqliteFile = "comet.db"

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
	return (&url.URL{Scheme: "file", Opaque: url.PathEscape(filepath.Join(dir, sqliteFile)), RawQuery: q.Encode()}).String()
}

func openSQLitePool(opts Options, size int, pragmas ...string) (*sql.DB, error) {
	// SQLite would make the file for everybody to read; its log takes over the mode.
	f, err := os.OpenFile(filepath.Join(opts.Dir, sqliteFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := f.Close(); err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
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

func (s *Store) openSQLite(ctx context.Context, opts Options) error {
	s.dialect = sqliteDialect()
	writeDB, err := openSQLitePool(opts, 1)
	if err != nil {
		return err
	}
	conn, err := pinConn(ctx, writeDB)
	if err != nil {
		_ = writeDB.Close()
		return fmt.Errorf("open %s: %w", filepath.Join(opts.Dir, sqliteFile), err)
	}
	if s.reads, err = openSQLitePool(opts, opts.ReadConnections, "query_only(1)", "temp_store(file)"); err != nil {
		return err
	}
	if s.orm, err = openORM(gormsqlite.New(gormsqlite.Config{DriverName: "sqlite", Conn: s.reads})); err != nil {
		return err
	}
	if err := watchFailures(s.orm); err != nil {
		return err
	}
	s.writes = newGroupWriter(s, conn)
	return nil
}
