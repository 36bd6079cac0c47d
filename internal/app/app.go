// Package app is the composition root: it creates the parts of the program, starts them in order
// and stops them in reverse.
package app

import (
	"cmp"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"

	"comet/internal/auth"
	"comet/internal/background"
	"comet/internal/config"
	"comet/internal/errs"
	"comet/internal/mcp"
	"comet/internal/protocol/v5/logformat"
	"comet/internal/telemetry"
	"comet/internal/tools"
	"comet/internal/transport"
	"comet/store"
	"comet/store/seal"
	"comet/store/sqlitefile"
)

// Options configures New and Run; nil is the zero value.
type Options struct {
	// Logger receives the log records of all parts, default discards.
	Logger *slog.Logger
	// Build describes the program, for /metrics and the receivers of webhooks.
	Build telemetry.Build
	// Out receives the addresses and the admin token in text form, default discards.
	Out io.Writer
	// Clock returns the time, by default a background.SteadyClock. Timers use the real time.
	Clock func() time.Time
	// Connector wraps the connector of the database, see store.Options.
	Connector store.WrapConnector
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	out.Out = cmp.Or(out.Out, io.Discard)
	if out.Clock == nil {
		begun := time.Now()
		out.Clock = background.SteadyClock(time.Now, func() time.Duration { return time.Since(begun) })
	}
	return out
}

// App is a server. New creates it, Start listens, Stop drains it.
type App struct {
	cfg       config.Config
	opts      Options
	log       *slog.Logger
	metrics   *telemetry.Metrics
	lock      *flock.Flock // of the data directory
	store     *store.Store
	tokens    *auth.Auth
	keys      *auth.Keys
	secrets   *seal.Keyring // of the database
	tracing   *telemetry.Tracing
	services  background.Group
	http      *httpServer
	tcp       *transport.TCPListener // nil for none
	tools     *tools.Service
	mcpServer *mcp.Server

	// freshToken is the admin token that this start generated, "" for none.
	freshToken string
	// started is set when Start has succeeded; the server is not ready before.
	started atomic.Bool
}

// Start starts the background work and the listeners, and returns. The first admin token is generated
// last: it is printed only once, and a start that fails must not use it up.
func (a *App) Start(ctx context.Context) (err error) {
	if err = a.services.Start(ctx); err == nil && a.cfg.AdminToken == "" {
		a.freshToken, err = ensureAdmin(context.WithoutCancel(ctx), a.tokens, a.cfg.Data)
	}
	a.started.Store(err == nil)
	return err
}

// ready returns an error until Start has returned, and while the server drains.
func (a *App) ready(context.Context) error {
	switch {
	case !a.started.Load():
		return errs.New(errs.Unavailable, "the server is starting")
	case a.http.draining.Load():
		return errs.New(errs.Unavailable, "shutting down")
	}
	return nil
}

// URL returns the URL of the server for clients on this machine. Call it after Start.
func (a *App) URL() string { return a.http.url() }

// V5Addr returns the address of the listener for PROTOCOL_V5, "" for none. Call it after Start.
func (a *App) V5Addr() string {
	if _, isSocket := transport.UnixPath(a.cfg.Transport.V5Listen); a.tcp == nil || isSocket {
		return a.cfg.Transport.V5Listen
	}
	return a.tcp.Addr().String()
}

// Stop drains the server: it accepts no new connections, waits for requests in flight until ctx
// ends, and stops the services and the store. It may be called at any time and more than once.
func (a *App) Stop(ctx context.Context) error {
	err := a.services.Stop(ctx)
	if a.store != nil {
		err = errors.Join(err, a.store.Close())
		a.store = nil
	}
	if a.lock != nil {
		err = errors.Join(err, a.lock.Unlock())
		a.lock = nil
	}
	return err
}

// LogFormats returns the log formats of protocols.
func LogFormats() map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler {
	return map[string]func(io.Writer, *slog.HandlerOptions) slog.Handler{"v5": logformat.NewHandler}
}

// Migrations migrates the schema of the configured database.
type Migrations = store.Migrator

// WithMigrations calls use with the migrations of the configured database. For SQLite it holds the
// lock on the data directory, so it fails while a server runs. Without create a SQLite database
// must exist.
func WithMigrations(cfg config.Config, create bool, use func(*Migrations) error) error {
	if cfg.DatabaseURL == "" {
		if _, err := os.Stat(sqlitefile.Path(cfg.Data)); !create && errors.Is(err, fs.ErrNotExist) {
			return errs.New(errs.NotFound, "there is no database in %s; name the folder with --data", cfg.Data)
		}
		lock, err := lockDir(cfg.Data)
		if err != nil {
			return err
		}
		defer func() { _ = lock.Unlock() }()
		if err := checkDatabase(cfg); err != nil {
			return err
		}
	}
	m, err := store.OpenMigrator(store.Options{Dir: cfg.Data, DatabaseURL: cfg.DatabaseURL})
	if err != nil {
		return err
	}
	return errors.Join(use(m), m.Close())
}
