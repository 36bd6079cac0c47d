package bench

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/registry"
	"comet/internal/telemetry"
	"comet/internal/usage"
	"comet/models"
	"comet/store"
	"comet/webhooks"
)

const adminToken = "0123456789abcdef0123456789abcdef"

// readConnections is the size of both read pools, ours and the raw handlers'.
const readConnections = 4

// house is the server under test, put together as app does it, with the
// baselines' routes behind the same chain.
type house struct {
	store    *store.Store
	registry *registry.Registry
	chain    string // address of the server with the chain
	bare     string // address of a server with the no-op route and nothing else
}

func openHouse(b *testing.B) *house {
	b.Helper()
	dir, started := b.TempDir(), time.Now()
	clock := func() time.Time { return day().Add(time.Since(started)) }
	s, err := store.Open(b.Context(), store.Options{Dir: dir, ReadConnections: readConnections, Clock: clock})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	h := &house{store: s, registry: registry.New(s, nil)}
	seed(b, s, h.registry)
	tokens := auth.New(s, nil)
	_, err = tokens.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)

	reads, writes := openRawReads(b, dir), openRawWriter(b, dir, clock)
	metrics := telemetry.NewMetrics(telemetry.Build{})
	h.chain = serve(b, api.New(api.Core{Registry: h.registry, Auth: tokens, Usage: usage.New(h.store, nil), Webhooks: webhooks.New(h.store, nil)}, &api.Options{
		Logger:  accessLog(b, dir),
		Measure: metrics.Measure(routePattern),
		Mount: func(r chi.Router) {
			r = r.With(scope(models.ScopeAgentsRead))
			r.Get("/bench/noop", noop)
			reads.mount(r)
			writes.mount(r)
		},
	}))
	bare := chi.NewRouter()
	bare.Get("/bench/noop", noop)
	h.bare = serve(b, bare)
	return h
}

// accessLog is the log a server keeps by default: a line of JSON a request, to a
// file.
func accessLog(b *testing.B, dir string) *slog.Logger {
	b.Helper()
	file, err := os.Create(filepath.Join(dir, "access.log"))
	require.NoError(b, err)
	b.Cleanup(func() { _ = file.Close() })
	log, err := telemetry.NewLogger(file, &telemetry.LogOptions{Format: "json"})
	require.NoError(b, err)
	return log
}

func routePattern(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() }

// scope is what the chain demands of every route of the agents.
func scope(s models.Scope) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p, _ := auth.From(r.Context())
			if err := auth.Require(p, s); err != nil {
				http.Error(w, err.Error(), http.StatusForbidden)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

const noopBody = `{"ok":true}`

// noop answers as cheaply as an HTTP server can.
func noop(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{"11"}
	_, _ = w.Write([]byte(noopBody))
}

// serve listens on the loopback with the time limits of app and returns the
// address.
func serve(b *testing.B, handler http.Handler) string {
	b.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 10 * time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			b.Error(err)
		}
	})
	b.Cleanup(func() {
		_ = server.Close()
		serving.Wait()
	})
	return listener.Addr().String()
}

// pragmas are the store's, for the baselines' own connections to its file.
func dsn(dir string, more ...string) string {
	pragmas := append([]string{
		"busy_timeout(10000)", "journal_mode(WAL)", "synchronous(FULL)", "foreign_keys(1)", "mmap_size(268435456)",
		"cache_size(-32768)", "temp_store(memory)", "wal_autocheckpoint(4000)",
	}, more...)
	return "file:" + filepath.Join(dir, "comet.db") + "?_txlock=immediate&_pragma=" + strings.Join(pragmas, "&_pragma=")
}

// background is for what outlives a request: statements and transactions.
func background() context.Context { return context.Background() }
