package bench

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
	"log/slog"

	"github.com/go-chi/chi/v5"
	"github.com/stretchr/testify/require"

	"comet/api"
	"comet/internal/auth"
	"comet/internal/registry"
	"comet/internal/telemetry"
	"comet/models"
	"comet/store"
)

type nullWriter struct{ h http.Header }

func (w *nullWriter) Header() http.Header         { return w.h }
func (w *nullWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *nullWriter) WriteHeader(int)             {}

func scratchHandler(b *testing.B, logger *slog.Logger, measure bool) (http.Handler, *rawReads) {
	dir, started := b.TempDir(), time.Now()
	clock := func() time.Time { return day().Add(time.Since(started)) }
	s, err := store.Open(b.Context(), store.Options{Dir: dir, ReadConnections: readConnections, Clock: clock})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, s.Close()) })
	reg := registry.New(s, nil)
	require.NoError(b, reg.Bootstrap(b.Context()))
	orch := []string{"", "orch-personnel", "orch-business", "orch-government", "orch-creative-studio", "orch-community", "orch-social", "orch-entertainment", "orch-my-team", "orch-scholar"}
	require.NoError(b, s.Write(b.Context(), func(tx *store.Tx) error {
		for n := range 500 {
			if err := seedFamily(tx, n, orch); err != nil {
				return err
			}
		}
		return nil
	}))
	tokens := auth.New(s, nil)
	_, err = tokens.EnsureAdmin(b.Context(), adminToken, true)
	require.NoError(b, err)
	reads := openRawReads(b, dir)
	o := &api.Options{
		Logger: logger,
		Mount: func(r chi.Router) {
			r = r.With(scope(models.ScopeAgentsRead))
			r.Get("/bench/noop", noop)
			reads.mount(r)
		}}
	if measure {
		o.Measure = telemetry.NewMetrics(telemetry.Build{}).Measure(routePattern)
	}
	return api.New(reg, tokens, o), reads
}

func hit(b *testing.B, h http.Handler, path string) {
	r := httptest.NewRequest("GET", path, nil)
	r.Header.Set("Authorization", "Bearer "+adminToken)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(b, 200, w.Code, w.Body)
	b.ReportAllocs()
	for b.Loop() {
		h.ServeHTTP(&nullWriter{http.Header{}}, r)
	}
}

func BenchmarkScratch(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		r := chi.NewRouter()
		r.Get("/bench/noop", noop)
		hit(b, r, "/bench/noop")
	})
	b.Run("nolog", func(b *testing.B) { h, _ := scratchHandler(b, nil, false); hit(b, h, "/bench/noop") })
	b.Run("measure", func(b *testing.B) { h, _ := scratchHandler(b, nil, true); hit(b, h, "/bench/noop") })
	b.Run("log", func(b *testing.B) { h, _ := scratchHandler(b, accessLog(b, b.TempDir()), true); hit(b, h, "/bench/noop") })
	b.Run("get", func(b *testing.B) { h, _ := scratchHandler(b, nil, false); hit(b, h, "/api/v1/agents/"+specialists(1)) })
	b.Run("getraw", func(b *testing.B) { h, _ := scratchHandler(b, nil, false); hit(b, h, "/bench/raw/agents/"+specialists(1)) })
	b.Run("get3", func(b *testing.B) { h, _ := scratchHandler(b, nil, false); hit(b, h, "/api/v1/agents/assistant-000037-1") })
	b.Run("get3raw", func(b *testing.B) { h, _ := scratchHandler(b, nil, false); hit(b, h, "/bench/raw/agents/assistant-000037-1") })
	b.Run("list", func(b *testing.B) { h, _ := scratchHandler(b, nil, false); hit(b, h, "/api/v1/agents?total=false") })
	b.Run("listraw", func(b *testing.B) { h, _ := scratchHandler(b, nil, false); hit(b, h, "/bench/raw/lists/uncounted?limit=100") })
}
