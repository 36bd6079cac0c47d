package store

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"golang.org/x/sync/semaphore"
	gormpostgres "gorm.io/driver/postgres"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/store/pipeline"
	"comet/store/sqlerr"
)

// postgresWriteTries bounds how often a closure is run again after a deadlock.
const postgresWriteTries = 8

// openPostgresPool opens a pool whose sessions have comet's settings; the settings in the URL take
// precedence, then those in special. Special settings are those of migrations, which are not pipelined: their
// statements depend on the schema that earlier ones create.
func openPostgresPool(opts Options, special map[string]string) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(opts.DatabaseURL)
	if err != nil {
		return nil, errs.New(errs.InvalidRequest, "the database URL cannot be read: it must look like postgres://user:password@host:5432/name")
	}
	settings := map[string]string{
		"application_name":                    "comet",
		"timezone":                            "UTC",
		"lock_timeout":                        "10s",
		"statement_timeout":                   "60s",
		"idle_in_transaction_session_timeout": "60s",
	}
	maps.Copy(settings, special)
	for name, value := range settings {
		if _, set := cfg.RuntimeParams[name]; !set {
			cfg.RuntimeParams[name] = value
		}
	}
	connector := stdlib.GetConnector(*cfg)
	if special == nil {
		connector = pipeline.Connector(connector)
	}
	db := opts.openPool(connector)
	db.SetMaxOpenConns(opts.MaxConnections)
	db.SetMaxIdleConns(opts.MaxConnections)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return db, nil
}

func (s *Store) openPostgres(ctx context.Context, opts Options) error {
	s.engine = postgresEngine()
	db, err := openPostgresPool(opts, nil)
	if err != nil {
		return err
	}
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return errs.Wrap(errs.Unavailable, err, "PostgreSQL cannot be reached")
	}
	s.reads = db
	if s.orm, err = openORM(gormpostgres.New(gormpostgres.Config{Conn: readPool{s.reads, s}}), opts.Keys); err != nil {
		return err
	}
	// A quarter of the pool is reserved for readers, because writers hold their connections while
	// they wait for a lock.
	s.writes = &postgresWriter{store: s, db: db, slots: semaphore.NewWeighted(int64(max(1, opts.MaxConnections*3/4)))}
	return nil
}

// postgresWriter runs each closure in a separate transaction; PostgreSQL groups the commits of
// concurrent transactions by itself. A closure that fails because of a deadlock or a serialization
// conflict runs again.
type postgresWriter struct {
	store *Store
	db    *sql.DB
	slots *semaphore.Weighted // one for each writer that may hold a connection
	queue atomic.Int64        // callers that wait for a slot
}

func (w *postgresWriter) waiting() int { return int(w.queue.Load()) }

func (w *postgresWriter) close() error { return nil } // the pool is closed as s.reads

func (w *postgresWriter) write(ctx context.Context, fn func(*Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 2*time.Millisecond, 200*time.Millisecond
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		err := w.once(ctx, fn)
		if err != nil && !sqlerr.Retryable(err) {
			err = backoff.Permanent(err)
		}
		return struct{}{}, err
	}, backoff.WithBackOff(wait), backoff.WithMaxTries(postgresWriteTries))
	return err
}

func (w *postgresWriter) once(ctx context.Context, fn func(*Tx) error) error {
	// The wait for a connection may be cut off; the transaction may not.
	w.queue.Add(1)
	err := w.slots.Acquire(ctx, 1)
	w.queue.Add(-1)
	if err != nil {
		return err
	}
	defer w.slots.Release(1)
	conn, err := w.db.Conn(ctx)
	if err != nil {
		return sqlerr.Translate(err)
	}
	defer func() { _ = conn.Close() }()
	begun := time.Now()
	sqlTx, err := conn.BeginTx(context.WithoutCancel(ctx), nil)
	if err != nil {
		return sqlerr.Translate(err)
	}
	tx := w.store.newTx(ctx, sqlTx)
	background.Placed(ctx, false)
	if err := tx.runClosure(fn); err != nil {
		if e := sqlTx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) {
			w.store.log.Warn("a rollback failed; the connection is dropped", "error", e)
		}
		return err
	}
	if err := sqlTx.Commit(); err != nil {
		if sqlerr.RolledBack(err) {
			return sqlerr.Translate(err)
		}
		return errs.Wrap(errs.Unavailable, err, "the connection to the database was lost during the commit; whether the change was stored is unknown")
	}
	w.store.onCommit(1, time.Since(begun))
	w.store.committed(tx)
	return nil
}
