package app

import (
	"errors"

	"comet/internal/config"
	"comet/store"
)

// Migrations is the schema of the configured database.
type Migrations = store.Migrator

// WithMigrations opens the database of a configuration for changes of its schema
// and calls use. A SQLite file is guarded by the lock on its data directory, so
// a running server keeps others out.
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
