package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
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
	return sqliteURI(filepath.Join(dir, sqliteFile), q)
}

// sqliteURI names a database file with parameters of SQLite and of its driver.
func sqliteURI(path string, parameters url.Values) string {
	return (&url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: parameters.Encode()}).String()
}

// createSQLiteFile creates the database file with mode 0600 where it is missing; SQLite itself
// would let other users read it, and gives its log the same mode. It must run before the first
// SQLite connection of this process and never opens a file that is there: closing any descriptor
// of a file drops every POSIX lock that the process holds on it, so another process could delete
// the write-ahead log below an open connection (“How To Corrupt An SQLite Database File” 2.2).
func createSQLiteFile(dir string) error {
	path := filepath.Join(dir, sqliteFile)
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	switch {
	case err == nil:
		err = f.Close()
	case errors.Is(err, fs.ErrExist):
		_, err = os.Stat(path) // fails for a symbolic link to a missing file
	}
	if err != nil {
		return fmt.Errorf("create the database: %w", err)
	}
	return nil
}

// openSQLitePool opens connections to a database whose file createSQLiteFile has created.
func openSQLitePool(opts Options, size int, pragmas ...string) (*sql.DB, error) {
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
	if err := createSQLiteFile(opts.Dir); err != nil {
		return err
	}
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
