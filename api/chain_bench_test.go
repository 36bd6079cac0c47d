package api

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-chi/chi/v5"
)

// BenchmarkChain is the cost of the chain itself: a route that does nothing, with
// and without it, and a small resource through all of it.
func BenchmarkChain(b *testing.B) {
	log := slog.New(slog.NewJSONHandler(io.Discard, nil)) //nolint:sloglint // what a line costs is measured too
	noop := func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
	routes := func(_ *responder, r chi.Router) { r.Get("/noop", noop) }
	bare := chi.NewRouter()
	bare.Get("/noop", noop)

	for _, c := range []struct {
		name, path string
		handler    http.Handler
	}{
		{"bare", "/noop", bare},
		{"chain", "/noop", newTestHandler(log, testServerOptions{timeout: defaultTimeout, routes: routes})},
		{"sampled", "/noop", newTestHandler(log, testServerOptions{timeout: defaultTimeout, logEvery: 100, routes: routes})},
		{"resource", "/things/a", newTestHandler(log, testServerOptions{timeout: defaultTimeout, logEvery: 100})},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := httptest.NewRequest(http.MethodGet, c.path, nil)
			r.Header.Set("Accept-Encoding", "gzip")
			b.ReportAllocs()
			for b.Loop() {
				c.handler.ServeHTTP(httptest.NewRecorder(), r)
			}
		})
	}
}
