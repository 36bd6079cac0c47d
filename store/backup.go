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

	"comet/internal/errs"
	"comet/migrations"
)

// BackupInfo describes a copy of the SQLite database that VerifyBackup found complete.
type BackupInfo struct {
	// Bytes is the size of the file.
	Bytes int64
	// Schema is the number of the newest migration that was applied.
	Schema int64
}

// DatabaseFile returns the path of the SQLite database in a data directory.
func DatabaseFile(dir string) string { return filepath.Join(dir, sqliteFile) }

// Backup copies the SQLite database of a data directory, as it is at one moment, into the file
// dst, which must be empty or missing. Other processes may read and write the database meanwhile.
// It returns errs.NotFound where the directory holds no database. After an error dst may be
// incomplete.
func Backup(ctx context.Context, dir, dst string) error {
	if _, err := os.Stat(DatabaseFile(dir)); errors.Is(err, fs.ErrNotExist) {
		return errs.New(errs.NotFound, "%s holds no database (%s)", dir, sqliteFile)
	}
	dst, err := filepath.Abs(dst) // SQLite takes a name that begins with "file:" for a URI
	if err != nil {
		return err
	}
	db, err := openSQLiteFile(DatabaseFile(dir), url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(10000)"}})
	if err != nil {
		return err
	}
	_, err = db.ExecContext(ctx, "VACUUM INTO ?", dst)
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("copy %s: %w", DatabaseFile(dir), err)
	}
	return nil
}

// VerifyBackup checks that a file is a complete and undamaged database of comet that this program
// can open, and that no process writes to it. It changes nothing. It returns errs.NotFound for a
// missing file and errs.InvalidRequest for every other file that cannot be restored; the detail calls
// the file “it”.
func VerifyBackup(ctx context.Context, path string) (BackupInfo, error) {
	file, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return BackupInfo{}, errs.New(errs.NotFound, "it does not exist")
	case err != nil:
		return BackupInfo{}, err
	case !file.Mode().IsRegular():
		return BackupInfo{}, errs.New(errs.InvalidRequest, "it is not a file")
	}
	for _, suffix := range []string{"-wal", "-journal"} {
		if log, err := os.Stat(path + suffix); err == nil && log.Size() > 0 {
			return BackupInfo{}, errs.New(errs.InvalidRequest, "it is incomplete without the log beside it, %s: use a file that comet backup has written", path+suffix)
		}
	}
	// Immutable: SQLite takes no locks and creates no files beside this one.
	db, err := openSQLiteFile(path, url.Values{"mode": {"ro"}, "immutable": {"1"}})
	if err != nil {
		return BackupInfo{}, err
	}
	info := BackupInfo{Bytes: file.Size()}
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
		return 0, errs.New(errs.InvalidRequest, "its schema is %d, and this program knows %d: use a newer comet", schema, newest)
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
	db, err := openSQLiteFile(DatabaseFile(dir), url.Values{"mode": {"rw"}, "_pragma": {"busy_timeout(1000)"}})
	if err != nil {
		return err
	}
	var mode string
	err = db.QueryRowContext(ctx, "PRAGMA journal_mode = DELETE").Scan(&mode)
	if err == nil && mode != "delete" {
		err = errs.New(errs.Busy, "another process uses the database %s", DatabaseFile(dir))
	}
	return errors.Join(translate(err), db.Close())
}

// openSQLiteFile opens one connection to a database file with parameters of the driver.
func openSQLiteFile(path string, parameters url.Values) (*sql.DB, error) {
	db, err := sql.Open("sqlite", sqliteURI(path, parameters))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	db.SetMaxOpenConns(1)
	return db, nil
}
