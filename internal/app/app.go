// Package app is the composition root: it is the only room that knows all the
// others, puts them together in order, and takes them apart in reverse.
package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/config"
	"comet/internal/errs"
	"comet/internal/lifecycle"
	"comet/internal/registry"
	"comet/store"
)

// App is a server that is put together but not yet listening.
type App struct {
	cfg      config.Config
	log      *slog.Logger
	lock     *dirLock
	store    *store.Store
	services lifecycle.Group
	http     *http.Server
	listener net.Listener
	draining atomic.Bool
	serveErr chan error

	// freshToken is the admin token of a first start, shown once.
	freshToken string
}

// New opens the ground (data directory, database), makes what a first start
// needs and puts the rooms together. Close what it returns with Stop.
func New(ctx context.Context, cfg config.Config, log *slog.Logger) (*App, error) {
	a := &App{cfg: cfg, log: log, serveErr: make(chan error, 1)}
	if err := a.open(ctx); err != nil {
		return nil, errors.Join(err, a.Stop(ctx))
	}
	return a, nil
}

func (a *App) open(ctx context.Context) (err error) {
	if a.lock, err = lockDir(a.cfg.Data); err != nil {
		return err
	}
	if a.store, err = store.Open(ctx, StoreOptions(a.cfg, a.log)); err != nil {
		return err
	}
	reg := registry.New(a.store, &registry.Options{StrictCapabilities: a.cfg.Registry.StrictCapabilities})
	if err := reg.Bootstrap(ctx); err != nil {
		return fmt.Errorf("create the founding agents: %w", err)
	}
	tokens := auth.New(a.store)
	if a.freshToken, err = ensureAdmin(ctx, tokens, a.cfg); err != nil {
		return err
	}
	a.http = a.newHTTPServer(api.New(reg, tokens, a.apiOptions()))
	return nil
}

// StoreOptions are the store's options of a configuration.
func StoreOptions(cfg config.Config, log *slog.Logger) store.Options {
	return store.Options{
		Dir: cfg.Data, DatabaseURL: cfg.DatabaseURL,
		ReadConnections: cfg.Store.ReadConnections, MaxConnections: cfg.Store.MaxConnections, Logger: log,
	}
}

func (a *App) apiOptions() *api.Options {
	return &api.Options{
		Logger:         a.log,
		AccessSample:   a.cfg.Log.Sample,
		Checks:         a.checks(),
		RequestTimeout: a.cfg.HTTP.RequestTimeout,
		MaxBody:        a.cfg.HTTP.MaxBodyBytes,
		MaxRoster:      a.cfg.HTTP.MaxRosterBytes,
		RateLimit:      a.cfg.HTTP.RateLimit.Requests,
		RateWindow:     a.cfg.HTTP.RateLimit.Window,
	}
}

// checks are what /readyz asks.
func (a *App) checks() map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"server": func(context.Context) error {
			if a.draining.Load() {
				return errs.New(errs.Unavailable, "shutting down")
			}
			return nil
		},
		"database":   a.store.Ping,
		"migrations": a.store.CheckSchema,
	}
}

func (a *App) newHTTPServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      a.cfg.HTTP.RequestTimeout + 30*time.Second, // for clients that read slowly
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(a.log.Handler(), slog.LevelDebug),
	}
}

// Start listens and begins to serve; it returns at once.
func (a *App) Start(ctx context.Context) error {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", a.cfg.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w (choose another address with --listen, port 0 picks a free one)", a.cfg.Listen, err)
	}
	a.listener = l
	if err := a.services.Start(ctx); err != nil {
		return err
	}
	go func() {
		if err := a.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.serveErr <- err
		}
	}()
	return nil
}

// URL is where the server listens.
func (a *App) URL() string { return "http://" + a.listener.Addr().String() }

// Stop drains: no new connections, requests in flight finish until ctx ends,
// then the services and the store stop. It may be called at any time, twice too.
func (a *App) Stop(ctx context.Context) error {
	a.draining.Store(true)
	var all []error
	if a.http != nil && a.listener != nil {
		if err := a.http.Shutdown(ctx); err != nil {
			all = append(all, fmt.Errorf("requests were cut off: %w", err), a.http.Close())
		}
	}
	all = append(all, a.services.Stop(ctx))
	if a.store != nil {
		all = append(all, a.store.Close())
		a.store = nil
	}
	if a.lock != nil {
		all = append(all, a.lock.unlock())
		a.lock = nil
	}
	return errors.Join(all...)
}

// Run serves until ctx ends, then drains. out gets what a person needs to know.
func Run(ctx context.Context, cfg config.Config, log *slog.Logger, out io.Writer) error {
	a, err := New(ctx, cfg, log)
	if err != nil {
		return err
	}
	err = a.Start(ctx)
	if err == nil {
		a.announce(out)
		log.Info("listening", "url", a.URL(), "database", a.store.Database())
		select {
		case <-ctx.Done():
			log.Info("shutting down")
		case err = <-a.serveErr:
		}
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.HTTP.ShutdownTimeout)
	defer cancel()
	return errors.Join(err, a.Stop(stopCtx))
}
