// Package store keeps comet's state in SQL and is the only package that imports gorm. One code path
// serves SQLite and PostgreSQL; the differences are in sql.go, sqlite.go and postgres.go.
//
// Everything that changes state goes through Write. A write's closure sees one
// transaction and may be run again from the start; Write returns only after its commit.
// Reads use their own connections.
//
// Every call may return the error of its ended context, errs.Busy if it may be repeated at
// once, and errs.Unavailable while the database does not respond. The other errors are
// documented with each call; store/storetest tests them on both databases. A read that finds
// nothing returns an empty list or errs.NotFound and does not end its transaction; any other
// error of a statement ends it.
package store

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/sync/semaphore"
	"gorm.io/gorm"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/store/cache"
	"comet/store/eventlog"
	"comet/store/seal"
	"comet/store/sqlerr"
)

// Options configures Open. The zero value keeps a SQLite file in the current directory.
type Options struct {
	// Dir is where SQLite keeps comet.db; it must exist.
	Dir string
	// DatabaseURL is a postgres:// URL; empty means SQLite.
	DatabaseURL string
	// ReadConnections is the number of SQLite read connections, default 4.
	ReadConnections int
	// MaxConnections is the size of the PostgreSQL pool, default 20.
	MaxConnections int
	// SkipMigrations leaves the schema as it is.
	SkipMigrations bool
	// Quotas limits, by the name of a table, how many objects one token and its descendants may have created,
	// see package quotas; default 1,000 agents and 100 each of tokens, webhooks and upstreams.
	Quotas map[string]int
	// Keys seal the columns of seal.Columns, default none.
	Keys *seal.Keyring
	// Clock returns the time, default time.Now.
	Clock func() time.Time
	// Logger receives retries and aborted batches, default discards.
	Logger *slog.Logger
	// OnCommit receives the number of callers that shared a commit of Write and the
	// duration of their transaction; default none. It must return at once.
	OnCommit func(callers int, took time.Duration)
	// Connector wraps the connector of the store and its migrations, so that a test can
	// count statements; default none.
	Connector WrapConnector
}

// WrapConnector returns a connector that observes another one.
type WrapConnector = func(driver.Connector) driver.Connector

// openPool returns the pool of a connector.
func (o *Options) openPool(c driver.Connector) *sql.DB {
	if o.Connector != nil {
		c = o.Connector(c)
	}
	return sql.OpenDB(c)
}

// Store is an open database. It is safe for concurrent use.
type Store struct {
	engine   *engine
	process  string
	reads    *sql.DB
	orm      *gorm.DB // on the read pool
	writes   transactor
	clock    func() time.Time
	quotas   map[string]int
	pause    func(context.Context, time.Duration) error // between the transactions of purges
	purging  *semaphore.Weighted                        // held by one purge, including its pause
	log      *slog.Logger
	onCommit func(callers int, took time.Duration)

	prepared *lru.Cache[string, *sql.Stmt]
	cache    *cache.Cache

	eventsWritten     background.Signal
	jobsWritten       background.Signal
	deliveriesWritten background.Signal

	events         *eventlog.Log
	webhookChanges atomic.Int64 // counts the commits that changed webhooks

	closing sync.Once
	closed  atomic.Bool
}

// transactor runs write closures; it is the part that differs most between the databases.
type transactor interface {
	write(ctx context.Context, fn func(*Tx) error) error
	// waiting returns the number of calls of write that have not begun yet.
	waiting() int
	close() error
}

// Open opens the database, brings its schema up to date under a lock and returns
// the store. The caller must Close it. It returns errs.InvalidRequest for a URL
// that cannot be read and errs.Unavailable when PostgreSQL does not answer.
func Open(ctx context.Context, opts Options) (*Store, error) {
	opts.ReadConnections = cmp.Or(opts.ReadConnections, 4)
	opts.MaxConnections = cmp.Or(opts.MaxConnections, 20)
	if opts.Clock == nil {
		opts.Clock = time.Now
	}
	if opts.Quotas == nil {
		opts.Quotas = map[string]int{"agents": 1000, "tokens": 100, "webhooks": 100, "upstreams": 100}
	}
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	if opts.OnCommit == nil {
		opts.OnCommit = func(int, time.Duration) {}
	}
	if !opts.SkipMigrations {
		if err := migrateUp(ctx, opts); err != nil {
			return nil, err
		}
	}
	s := &Store{
		process:           uuid.NewString(),
		clock:             opts.Clock,
		quotas:            opts.Quotas,
		pause:             background.Sleep,
		purging:           semaphore.NewWeighted(1),
		log:               opts.Logger,
		onCommit:          opts.OnCommit,
		events:            &eventlog.Log{},
		eventsWritten:     background.NewSignal(),
		jobsWritten:       background.NewSignal(),
		deliveriesWritten: background.NewSignal(),
	}
	var err error
	if s.cache, err = cache.New(opts.DatabaseURL != ""); err != nil {
		return nil, err
	}
	if s.prepared, err = lru.NewWithEvict(256, func(_ string, st *sql.Stmt) { _ = st.Close() }); err != nil {
		return nil, err
	}
	if opts.DatabaseURL == "" {
		err = s.openSQLite(ctx, opts)
	} else {
		err = s.openPostgres(ctx, opts)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Close waits for writes in progress and closes every connection. A second call does
// nothing. Later calls of other methods return errs.Unavailable.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		s.closed.Store(true)
		err = s.writes.close()
		s.prepared.Purge()
		err = errors.Join(err, s.reads.Close())
	})
	return err
}

// usable returns errs.Unavailable once the store is closed.
func (s *Store) usable() error {
	if s.closed.Load() {
		return errs.New(errs.Unavailable, "the server is shutting down")
	}
	return nil
}

// Ping checks that the database answers; it returns errs.Unavailable when it does not.
func (s *Store) Ping(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	var one int
	if err := s.reads.QueryRowContext(ctx, "SELECT 1").Scan(&one); err != nil {
		return sqlerr.Translate(err)
	}
	return nil
}

// Database names the kind of database, "sqlite" or "postgres".
func (s *Store) Database() string { return s.engine.name }

// Alone reports whether no other process can write to the database.
func (s *Store) Alone() bool { return s.engine.name == "sqlite" }

// Process returns the random id of this process, which its leases and connections name.
func (s *Store) Process() string { return s.process }

// Now returns the store's time in UTC, in whole microseconds, the precision of the database.
func (s *Store) Now() time.Time { return s.clock().UTC().Truncate(time.Microsecond) }

// Write runs fn in a transaction and returns after its commit: nil means that everything fn wrote
// is durable, an error that none of it is. (The one exception is a connection lost during a
// PostgreSQL COMMIT; the error then says that the outcome is unknown.) It returns the closure's own
// error as it is, or that of the statement the closure ignored.
//
// ctx is checked before fn starts and not after, so fn is never interrupted. fn may run several
// times and must set its results again each time. A statement that failed ends the transaction even
// if fn ignores the error. Panics and runtime.Goexit inside fn become errs.Internal. After Close it
// returns errs.Unavailable.
func (s *Store) Write(ctx context.Context, fn func(*Tx) error) error {
	if err := s.usable(); err != nil {
		return err
	}
	return s.writes.write(ctx, fn)
}

// EventsWritten receives after commits that wrote events.
func (s *Store) EventsWritten() <-chan struct{} { return s.eventsWritten }

// JobsWritten receives after commits that wrote jobs.
func (s *Store) JobsWritten() <-chan struct{} { return s.jobsWritten }

// DeliveriesWritten receives after commits that left deliveries to be made.
func (s *Store) DeliveriesWritten() <-chan struct{} { return s.deliveriesWritten }

// WebhookChanges counts the commits of this process that changed a webhook.
func (s *Store) WebhookChanges() int64 { return s.webhookChanges.Load() }

// committed notifies the listeners of a commit, once for all its transactions.
func (s *Store) committed(txs ...*Tx) {
	s.cache.Publish(convert(txs, func(tx *Tx) *cache.Change { return &tx.state.cached })...)
	var events, jobs, deliveries bool
	for _, tx := range txs {
		events, jobs, deliveries = events || tx.state.wroteEvents, jobs || tx.state.wroteJobs, deliveries || tx.state.wroteDeliveries
		if tx.state.wroteWebhooks { // before the later events are visible
			s.webhookChanges.Add(1)
		}
		s.events.Add(tx.state.events)
	}
	if events {
		s.eventsWritten.Set()
	}
	if jobs {
		s.jobsWritten.Set()
	}
	if deliveries {
		s.deliveriesWritten.Set()
	}
	for _, tx := range txs {
		for _, fn := range tx.state.after {
			fn()
		}
	}
}

// prepare returns a cached statement on the read pool. SQLite re-prepares on every query otherwise.
func (s *Store) prepare(ctx context.Context, query string) (*sql.Stmt, error) {
	if st, ok := s.prepared.Get(query); ok {
		return st, nil
	}
	st, err := s.reads.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	if prev, ok, _ := s.prepared.PeekOrAdd(query, st); ok {
		_ = st.Close()
		return prev, nil
	}
	return st, nil
}

// runPrepared runs a statement that prepare returned.
func (s *Store) runPrepared(ctx context.Context, st *sql.Stmt, query string, args []any) (*sql.Rows, error) {
	rows, err := st.QueryContext(ctx, args...)
	if err != nil {
		if now, _ := s.prepared.Peek(query); now != st { // evicted from the cache and closed in between
			return s.reads.QueryContext(ctx, query, args...)
		}
	}
	return rows, err
}
