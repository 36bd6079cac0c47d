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

// testServer is the server under test, composed as in app, with the routes of the baselines
// behind the same middleware chain.
type testServer struct {
	testDatabase
	store    *store.Store
	registry *registry.Registry
	ledger   *usage.Ledger
	chain    string // address of the server with the middleware chain
	bare     string // address of a server with only the no-op route
}

// openRegistryServer starts a server with 100,000 agents.
func openRegistryServer(b *testing.B) *testServer {
	b.Helper()
	h := newServer(b, newDatabase(b, sqlite))
	seed(b, h.store)
	h.open(b, models.ScopeAgentsRead, openRawReads(b, h.testDatabase).mount)
	return h
}

// newServer opens the store and creates the bootstrap agents.
func newServer(b *testing.B, g testDatabase) *testServer {
	b.Helper()
	s, err := store.Open(b.Context(), g.options)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	h := &testServer{testDatabase: g, store: s, registry: registry.New(s, nil), ledger: usage.New(s, nil)}
	require.NoError(b, h.registry.Bootstrap(b.Context()))
	return h
}

// open starts the HTTP servers, with the routes of the baselines behind the chain and the scope
// they require.
func (h *testServer) open(b *testing.B, needs models.Scope, baselines ...func(chi.Router)) {
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

// accessLog returns the default log of a server: JSON to a file.
func accessLog(b *testing.B) *slog.Logger {
	b.Helper()
	log, err := telemetry.NewLogger(logFile(b), &telemetry.LogOptions{Format: "json"})
	require.NoError(b, err)
	return log
}

func routePattern(r *http.Request) string { return chi.RouteContext(r.Context()).RoutePattern() }

// scope requires a scope of every request, as the routes of agents do.
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

// noop writes the cheapest possible response.
func noop(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h["Content-Type"] = []string{"application/json"}
	h["Content-Length"] = []string{"11"}
	_, _ = w.Write([]byte(noopBody))
}

// serve listens on the loopback interface with the time limits of app and returns the address.
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
