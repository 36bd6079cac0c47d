package bench

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
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

// house is the server under test, put together as app does it, with the
// baselines' routes behind the same chain.
type house struct {
	ground
	store    *store.Store
	registry *registry.Registry
	ledger   *usage.Ledger
	chain    string // address of the server with the chain
	bare     string // address of a server with the no-op route and nothing else
}

// openHouse opens the house of the registry's benchmarks, with 100,000 agents.
func openHouse(b *testing.B) *house {
	b.Helper()
	h := buildHouse(b, newGround(b, sqlite))
	seed(b, h.store)
	reads, writes := openRawReads(b, h.ground), openRawWriter(b, h.ground)
	h.open(b, models.ScopeAgentsRead, reads.mount, writes.mount)
	return h
}

// buildHouse opens the rooms and creates the founders.
func buildHouse(b *testing.B, g ground) *house {
	b.Helper()
	s, err := store.Open(b.Context(), g.options)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	h := &house{ground: g, store: s, registry: registry.New(s, nil), ledger: usage.New(s, nil)}
	require.NoError(b, h.registry.Bootstrap(b.Context()))
	return h
}

// open opens the doors, with the baselines' routes behind the chain; what they do
// needs the scope.
func (h *house) open(b *testing.B, needs models.Scope, baselines ...func(chi.Router)) {
	b.Helper()
	tokens := auth.New(h.store, nil)
	_, err := tokens.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)
	metrics := telemetry.NewMetrics(telemetry.Build{})
	h.chain = serve(b, api.New(api.Services{Registry: h.registry, Auth: tokens, Usage: h.ledger, Webhooks: webhooks.New(h.store, nil)}, &api.Options{
		Logger:  accessLog(b),
		Measure: metrics.Measure(routePattern),
		Mount: func(r chi.Router) {
			r = r.With(scope(needs))
			r.Get("/bench/noop", noop)
			for _, mount := range baselines {
				mount(r)
			}
		},
	}))
	bare := chi.NewRouter()
	bare.Get("/bench/noop", noop)
	h.bare = serve(b, bare)
}

// accessLog is the log a server keeps by default: a line of JSON a request, to a
// file.
func accessLog(b *testing.B) *slog.Logger {
	b.Helper()
	log, err := telemetry.NewLogger(logFile(b), &telemetry.LogOptions{Format: "json"})
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
