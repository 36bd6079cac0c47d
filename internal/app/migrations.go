package app

import (
	"errors"

	"comet/internal/config"
	"comet/store"
)

// Migrations is the schema of the configured database.
type Migrations = store.Migrator

// WithMigrations calls use with the migrations of the configured database. For SQLite it holds the
// lock on the data directory, so it fails while a server runs.
func WithMigrations(cfg config.Config, use func(*Migrations) error) error {
	if cfg.DatabaseURL == "" {
		lock, err := lockDir(cfg.Data)
		if err != nil {
			return err
		}
		defer func() { _ = lock.unlock() }()
	}
	m, err := store.OpenMigrator(store.Options{Dir: cfg.Data, DatabaseURL: cfg.DatabaseURL})
	if err != nil {
		return err
	}
	return errors.Join(use(m), m.Close())
}
