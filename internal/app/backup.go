package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"comet/internal/config"
	"comet/internal/errs"
	"comet/store/sqlitefile"
)

// BackupReport is the result of Backup or Restore.
type BackupReport struct {
	sqlitefile.Info
	// Database is the path of the database in the data directory.
	Database string
	// Former is the path under which Restore kept the database it replaced, "" for none.
	Former string
}

// Backup writes a verified copy of the configured SQLite database to the file path, also while a
// server runs on the data directory. The file appears when it is complete, with mode 0600. It
// replaces an existing file only with force; otherwise that is errs.Conflict. It returns
// errs.InvalidRequest if a PostgreSQL database is configured.
func Backup(ctx context.Context, cfg config.Config, path string, force bool) (report BackupReport, err error) {
	report.Database = sqlitefile.Path(cfg.Data)
	if cfg.DatabaseURL != "" {
		return report, errs.New(errs.InvalidRequest, "the configuration names a PostgreSQL database: use pg_dump")
	}
	if err := checkTarget(cfg.Data, path, force); err != nil {
		return report, err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // mode 0600
	if errors.Is(err, fs.ErrNotExist) {
		return report, errs.New(errs.NotFound, "the directory %s does not exist", filepath.Dir(path))
	} else if err != nil {
		return report, err
	}
	defer func() {
		if err != nil {
			removeAll(temporary.Name(), temporary.Name()+"-journal")
		}
	}()
	if err := temporary.Close(); err != nil {
		return report, err
	}
	if err := sqlitefile.Backup(ctx, cfg.Data, temporary.Name()); errs.Is(err, errs.NotFound) {
		return report, errs.Wrap(errs.NotFound, err, "%s: name the server's data directory with --data", reason(err))
	} else if err != nil {
		return report, err
	}
	if report.Info, err = sqlitefile.Verify(ctx, temporary.Name()); ctx.Err() != nil {
		return report, ctx.Err()
	} else if err != nil {
		return report, fmt.Errorf("the copy of %s was removed, because it cannot be restored: %s", report.Database, reason(err))
	}
	if err := syncFile(temporary.Name()); err != nil {
		return report, err
	}
	return report, publish(temporary.Name(), path, force)
}

// checkTarget reports why a backup must not be written to a path.
func checkTarget(data, path string, force bool) error {
	if _, err := os.Stat(path + "-wal"); err == nil {
		return errs.New(errs.Conflict, "%s is a database in use: its write-ahead log %s-wal exists", path, path)
	}
	existing, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !existing.Mode().IsRegular():
		return errs.New(errs.Conflict, "%s exists and is not a file", path)
	case !force:
		return errs.New(errs.Conflict, "%s already exists: choose another name, or replace it with --force", path)
	}
	if database, err := os.Stat(sqlitefile.Path(data)); err == nil && os.SameFile(existing, database) {
		return errs.New(errs.Conflict, "%s is the database itself", path)
	}
	return nil
}

// publish renames a complete file to path. Without force it replaces no file.
func publish(temporary, path string, force bool) error {
	if !force {
		switch err := os.Link(temporary, path); {
		case errors.Is(err, fs.ErrExist):
			return errs.New(errs.Conflict, "%s already exists: choose another name, or replace it with --force", path)
		case err == nil:
			return errors.Join(os.Remove(temporary), syncDir(filepath.Dir(path)))
		} // the file system has no hard links
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// Restore makes a verified backup the database of the configured data directory, which no server
// may use. The former database is replaced only with force, and kept under another name. At every
// moment the directory holds either the former or the restored database, provided that the file
// system has hard links. It returns errs.Conflict where it must not replace the database, and
// errs.InvalidRequest or errs.NotFound for a file that is not a backup.
func Restore(ctx context.Context, cfg config.Config, path string, force bool) (report BackupReport, err error) {
	report.Database = sqlitefile.Path(cfg.Data)
	if cfg.DatabaseURL != "" {
		return report, errs.New(errs.InvalidRequest, "the configuration names a PostgreSQL database: use pg_restore")
	}
	if report.Info, err = sqlitefile.Verify(ctx, path); err != nil && ctx.Err() == nil {
		return report, errs.Wrap(errs.CodeOf(err), err, "%s cannot be restored: %s", path, reason(err))
	} else if err != nil {
		return report, err
	}
	lock, err := lockDir(cfg.Data)
	if errors.Is(err, errLocked) {
		return report, errs.New(errs.Conflict, "%v", err)
	} else if err != nil {
		return report, err
	}
	defer func() { _ = lock.Unlock() }()
	existing, err := os.Lstat(report.Database)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return report, err
	case !existing.Mode().IsRegular():
		return report, errs.New(errs.Conflict, "%s is not a regular file; if it is a symbolic link, restore into the directory that it points to", report.Database)
	case !force:
		return report, errs.New(errs.Conflict, "%s already exists: --force replaces it and keeps it under another name", report.Database)
	}
	temporary, err := copyBackup(ctx, path, cfg.Data)
	if err != nil {
		return report, err
	}
	if report.Former, err = setAside(ctx, cfg.Data, existing != nil); err == nil {
		err = os.Rename(temporary, report.Database)
	}
	if err != nil {
		removeAll(temporary)
		return report, err
	}
	return report, syncDir(cfg.Data)
}

// copyBackup copies a verified backup to a new file in a directory, verifies the copy and returns
// its path. No process writes to the backup, so it can be read as any file.
func copyBackup(ctx context.Context, path, dir string) (copied string, err error) {
	from, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = from.Close() }()
	to, err := os.CreateTemp(dir, ".comet.db.restore-*") // mode 0600
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	if err = errors.Join(err, to.Sync(), to.Close()); err == nil {
		_, err = sqlitefile.Verify(ctx, to.Name())
	}
	if err != nil {
		removeAll(to.Name())
		return "", fmt.Errorf("copy %s: %s", path, reason(err))
	}
	return to.Name(), nil
}

// setAside gives the database of a data directory a second name, which it returns, and moves the
// logs of SQLite away, which would be applied to the next database of the first name.
func setAside(ctx context.Context, dir string, exists bool) (former string, err error) {
	database := sqlitefile.Path(dir)
	aside := database + ".before-restore-" + time.Now().UTC().Format("20060102T150405.000Z")
	if exists {
		if err := sqlitefile.FoldLog(ctx, dir); errs.Is(err, errs.Busy) {
			return "", errs.New(errs.Conflict, "another process uses %s: stop it first", database)
		} else if ctx.Err() != nil {
			return "", ctx.Err()
		} // else the database is damaged, which is a reason to replace it
		if err := os.Link(database, aside); errors.Is(err, fs.ErrExist) {
			return "", err
		} else if err != nil { // the file system has no hard links
			if err := os.Rename(database, aside); err != nil {
				return "", err
			}
		}
		former = aside
	}
	for _, suffix := range []string{"-wal", "-journal"} {
		if err := os.Rename(database+suffix, aside+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
	}
	if err := os.Remove(database + "-shm"); err != nil && !errors.Is(err, fs.ErrNotExist) { // an index of the log
		return "", err
	}
	return former, syncDir(dir)
}

// reason returns the text of an error without its code.
func reason(err error) string {
	if coded, ok := errors.AsType[*errs.Error](err); ok {
		return coded.Detail
	}
	return err.Error()
}

// syncFile makes the content of a file durable.
func syncFile(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// removeAll removes files that are of no use after an error, which matters more.
func removeAll(paths ...string) {
	for _, path := range paths {
		_ = os.Remove(path)
	}
}
