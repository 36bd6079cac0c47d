// Package sqlitefile names, creates, opens, copies and verifies the file in which SQLite keeps comet's
// database. Package store reads and writes it.
package sqlitefile

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite" // the pure Go driver

	"comet/internal/errs"
	"comet/migrations"
)

// name is the database's name inside the data directory.
const name = "comet.db"

// Path returns the path of the database in a data directory.
func Path(dir string) string { return filepath.Join(dir, name) }

// URI names a database file with parameters of SQLite and of its driver.
func URI(path string, parameters url.Values) string {
	return (&url.URL{Scheme: "file", Opaque: url.PathEscape(path), RawQuery: parameters.Encode()}).String()
}

// Create creates the database file of a data directory with mode 0600 where it is missing; SQLite itself
// would let other users read it, and gives its log the same mode. It must run before the first
// SQLite connection of this process and never opens a file that is there: closing any descriptor
// of a file drops every POSIX lock that the process holds on it, so another process could delete
// the write-ahead log below an open connection (“How To Corrupt An SQLite Database File” 2.2).
func Create(dir string) error {
	path := Path(dir)
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

// Info describes a database file that Verify found complete.
type Info struct {
	// Bytes is the size of the file.
	Bytes int64
	// Schema is the number of the newest migration that was applied.
	Schema int64
}

// Backup copies the SQLite database of a data directory, as it is at one moment, into the file
// dst, which must be empty or missing. Other processes may read and write the database meanwhile.
// It returns errs.NotFound where the directory contains no database. After an error dst may be
// incomplete.
func Backup(ctx context.Context, dir, dst string) error {
	if _, err := os.Stat(Path(dir)); errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.NotFound, "%s contains no database (%s)", dir, name)
	}
	dst, err := filepath.Abs(dst) // SQLite takes a name that begins with "file:" for a URI
	if err != nil {
		return err
	}
	db, err := open(Path(dir), url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(10000)"}})
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", dst)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", Path(dir), err)
	}
	return nil
}

// Verify checks that a file is a complete and undamaged database of comet that this program
// can open, and that no process writes to it. It changes nothing. It returns errs.NotFound for a
// missing file and errs.InvalidRequest for every other file that cannot be restored; the detail calls
// the file “it”.
func Verify(ctx context.Context, path string) (Info, error) {
	file, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Info{}, errs.New(errs.NotFound, "it does not exist")
	case err != nil:
		return Info{}, err
	case !file.Mode().IsRegular():
		return Info{}, errs.New(errs.InvalidRequest, "it is not a file")
	}
	for _, suffix := range []string{"-wal", "-journal"} {
		if log, err := os.Stat(path + suffix); err == nil && log.Size() > 0 {
			return Info{}, errs.New(errs.InvalidRequest, "it is incomplete without the log beside it, %s: use a file that comet backup has written", path+suffix)
		}
	}
	// Immutable: SQLite takes no locks and creates no files beside this one.
	db, err := open(path, url.Values{"mode": {"ro"}, "immutable": {"1"}})
	if err != nil {
		return Info{}, err
	}
	info := Info{Bytes: file.Size()}
	info.Schema, err = verifyDatabase(ctx, db)
	return info, errors.Join(err, db.Close())
}

// verifyDatabase checks the content of a database and returns its schema version.
func verifyDatabase(ctx context.Context, db *sql.DB) (schema int64, err error) {
	var tables int
	err = db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ('goose_db_version', 'agents', 'events')").Scan(&tables)
	if err == nil && tables == 3 {
		err = db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&schema)
	}
	newest := migrations.Newest("sqlite")
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case err != nil:
		return 0, errs.Wrap(errs.InvalidRequest, err, "it is damaged, or not a database: %v", err)
	case schema == 0:
		return 0, errs.New(errs.InvalidRequest, "it is not a database of comet")
	case schema > newest:
		return 0, errs.New(errs.InvalidRequest, "its schema is %d, but this program supports schemas up to %d: use a newer comet", schema, newest)
	}
	var finding string // the first, "ok" for none
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&finding); err != nil {
		finding = err.Error()
	}
	switch {
	case ctx.Err() != nil:
		return 0, ctx.Err()
	case finding != "ok":
		return 0, errs.New(errs.InvalidRequest, "it is damaged: %s", finding)
	}
	return schema, nil
}

// FoldLog moves the content of SQLite's write-ahead log into the database file of a data
// directory and removes the log, so that the file alone holds everything. It returns errs.Busy
// while another process uses the database, and any other error for a damaged database.
func FoldLog(ctx context.Context, dir string) error {
	db, err := open(Path(dir), url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(1000)"}})
	if err != nil {
		return err
	}
	var mode string
	err = db.QueryRowContext(ctx, "PRAGMA journal_mode = DELETE").Scan(&mode)
	if err == nil && mode != "delete" {
		err = errs.New(errs.Busy, "another process uses the database %s", Path(dir))
	}
	var failed *sqlite.Error
	if errors.As(err, &failed) && (failed.Code()&0xff == busy || failed.Code()&0xff == locked) {
		err = errs.Wrap(errs.Busy, err, "another process uses the database %s", Path(dir))
	}
	return errors.Join(err, db.Close())
}

// The primary result codes of SQLite for a database that another connection uses.
const (
	busy   = 5
	locked = 6
)

// open opens one connection to a database file with parameters of the driver.
func open(path string, parameters url.Values) (*sql.DB, error) {
	db, err := sql.Open("sqlite", URI(path, parameters))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}
