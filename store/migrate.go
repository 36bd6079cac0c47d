package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"

	"comet/internal/errs"
	"comet/migrations"
	"comet/store/sqlerr"
	"comet/store/sqlitefile"
)

// MigrationStatus is one migration and when it was applied.
type MigrationStatus struct {
	Version int64      `json:"version"`
	Name    string     `json:"name"`
	Applied *time.Time `json:"applied_at"` // nil while pending
}

// Migrator changes the schema. On PostgreSQL it holds an advisory lock while it
// does; a SQLite file is guarded by the lock on the data directory.
type Migrator struct {
	db       *sql.DB
	provider *goose.Provider
	database string // names the database in errors
}

// OpenMigrator opens the database that opts name. The caller must Close it.
func OpenMigrator(opts Options) (*Migrator, error) {
	if opts.DatabaseURL == "" {
		if err := sqlitefile.Create(opts.Dir); err != nil {
			return nil, err
		}
		db, err := openSQLitePool(opts, 1)
		if err != nil {
			return nil, err
		}
		return newMigrator(db, sqlitefile.Path(opts.Dir), goose.DialectSQLite3) // glossary:allow
	}
	opts.MaxConnections = 2
	db, err := openPostgresPool(opts, map[string]string{"lock_timeout": "0", "statement_timeout": "0"}) // an index may take its time
	if err != nil {
		return nil, err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return newMigrator(db, "PostgreSQL", goose.DialectPostgres, goose.WithSessionLocker(locker)) // glossary:allow
}

func newMigrator(db *sql.DB, name string, d goose.Dialect, opts ...goose.ProviderOption) (*Migrator, error) { // glossary:allow
	files := migrations.SQLite()
	if d == goose.DialectPostgres { // glossary:allow
		files = migrations.Postgres()
	}
	opts = append(opts, goose.WithDisableGlobalRegistry(true))
	p, err := goose.NewProvider(d, db, files, opts...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read the migrations: %w", err), db.Close())
	}
	return &Migrator{db, p, name}, nil
}

// Close closes the connection.
func (m *Migrator) Close() error { return m.db.Close() }

// Up applies every pending migration and returns their names. It returns errs.Conflict for the
// schema of a newer program.
func (m *Migrator) Up(ctx context.Context) ([]string, error) {
	applied, err := m.names(m.provider.Up(ctx))
	if err != nil {
		return nil, err
	}
	sources := m.provider.ListSources()
	version, err := m.provider.GetDBVersion(ctx)
	if newest := sources[len(sources)-1].Version; err == nil && version > newest {
		return nil, errs.New(errs.Conflict, "the schema of the database %s is %d, but this program supports schemas up to %d: use a newer comet", m.database, version, newest)
	}
	return applied, m.wrap(err)
}

// Down undoes the newest applied migration and returns its name.
func (m *Migrator) Down(ctx context.Context) ([]string, error) {
	r, err := m.provider.Down(ctx)
	if errors.Is(err, goose.ErrNoNextVersion) {
		return nil, nil
	}
	return m.names([]*goose.MigrationResult{r}, err)
}

// Status lists every migration, oldest first.
func (m *Migrator) Status(ctx context.Context) ([]MigrationStatus, error) {
	all, err := m.provider.Status(ctx)
	if err != nil {
		return nil, m.wrap(err)
	}
	out := make([]MigrationStatus, 0, len(all))
	for _, s := range all {
		st := MigrationStatus{Version: s.Source.Version, Name: s.Source.Path}
		if s.State == goose.StateApplied {
			st.Applied = new(s.AppliedAt.UTC())
		}
		out = append(out, st)
	}
	return out, nil
}

func migrateUp(ctx context.Context, opts Options) error {
	m, err := OpenMigrator(opts)
	if err != nil {
		return err
	}
	_, err = m.Up(ctx)
	return errors.Join(err, m.Close())
}

func (m *Migrator) names(results []*goose.MigrationResult, err error) ([]string, error) {
	if err != nil {
		return nil, m.wrap(err)
	}
	return convert(results, func(r *goose.MigrationResult) string { return r.Source.Path }), nil
}

// wrap adds the database to an error.
func (m *Migrator) wrap(err error) error {
	if err == nil {
		return nil
	}
	if named := sqlerr.Open(err, m.database); named != nil {
		return named
	}
	return fmt.Errorf("migrate the database %s: %w", m.database, err)
}

// CheckSchema returns errs.Unavailable unless every migration this program brings has been applied.
func (s *Store) CheckSchema(ctx context.Context) error {
	version, err := one[int64](s.on(ctx), "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied")
	if err != nil {
		return err
	}
	if newest := migrations.Newest(s.engine.name); version < newest {
		return errs.New(errs.Unavailable, "the database is at migration %d, this program needs %d: run comet migrate up", version, newest)
	}
	return nil
}
