package app

import (
	"errors"
	"io/fs"
	"os"

	"comet/internal/config"
	"comet/internal/errs"
	"comet/store"
	"comet/store/sqlitefile"
)

// Migrations is the schema of the configured database.
type Migrations = store.Migrator

// WithMigrations calls use with the migrations of the configured database. For SQLite it holds the
// lock on the data directory, so it fails while a server runs. Without create a SQLite database must
// exist.
func WithMigrations(cfg config.Config, create bool, use func(*Migrations) error) error {
	if cfg.DatabaseURL == "" {
		if _, err := os.Stat(sqlitefile.Path(cfg.Data)); !create && errors.Is(err, fs.ErrNotExist) {
			return errs.New(errs.NotFound, "there is no database in %s; name the folder with --data", cfg.Data)
		}
		lock, err := lockDir(cfg.Data)
		if err != nil {
			return err
		}
		defer func() { _ = lock.unlock() }()
		if err := checkDatabase(cfg.Data); err != nil {
			return err
		}
	}
	m, err := store.OpenMigrator(store.Options{Dir: cfg.Data, DatabaseURL: cfg.DatabaseURL})
	if err != nil {
		return err
	}
	return errors.Join(use(m), m.Close())
}
