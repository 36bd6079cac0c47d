package telemetry_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"comet/internal/telemetry"
)

func scrape(t *testing.T, m *telemetry.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	require.Equal(t, http.StatusOK, w.Code)
	return w.Body.String()
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	build := telemetry.Build{Version: "v1.2.3", Revision: "abc", Go: "go1.26"}

	t.Run("requests are counted by route, method and status class", func(t *testing.T) {
		t.Parallel()
		m := telemetry.NewMetrics(build)
		for range 3 {
			answer(t, m, "GET", "/api/v1/agents/{agent_id}", func(w http.ResponseWriter) { _, _ = w.Write([]byte("x")) })
		}
		answer(t, m, "POST", "/api/v1/agents", func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusEarlyHints)
			w.WriteHeader(http.StatusUnprocessableEntity)
			w.WriteHeader(http.StatusOK)
		})
		text := scrape(t, m)
		require.Contains(t, text, `comet_http_requests_total{method="GET",route="/api/v1/agents/{agent_id}",status="2xx"} 3`)
		require.Contains(t, text, `comet_http_requests_total{method="POST",route="/api/v1/agents",status="4xx"} 1`)
		require.Contains(t, text, `comet_http_request_duration_seconds_bucket{method="GET",route="/api/v1/agents/{agent_id}",le="30"} 3`)
		require.Contains(t, text, `comet_http_requests_in_flight 0`)
	})

	t.Run("a handler that writes nothing answered 200, one that panics 500", func(t *testing.T) {
		t.Parallel()
		m := telemetry.NewMetrics(build)
		answer(t, m, "GET", "/a", func(http.ResponseWriter) {})
		require.Panics(t, func() { answer(t, m, "GET", "/b", func(http.ResponseWriter) { panic("x") }) })
		text := scrape(t, m)
		require.Contains(t, text, `route="/a",status="2xx"} 1`)
		require.Contains(t, text, `route="/b",status="5xx"} 1`)
		require.Contains(t, text, `comet_http_requests_in_flight 0`)
	})

	t.Run("a client cannot make labels", func(t *testing.T) {
		t.Parallel()
		m := telemetry.NewMetrics(build)
		answer(t, m, "BREW", "", func(w http.ResponseWriter) { w.WriteHeader(999) })
		require.Contains(t, scrape(t, m), `comet_http_requests_total{method="other",route="unmatched",status="other"} 1`)
	})

	t.Run("a writer that knows its status is not wrapped again", func(t *testing.T) {
		t.Parallel()
		m := telemetry.NewMetrics(build)
		outer := &knowing{httptest.NewRecorder()}
		var inner http.ResponseWriter
		m.Measure(func(*http.Request) string { return "/a" })(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			inner = w
		})).ServeHTTP(outer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		require.Same(t, outer, inner)
		require.Contains(t, scrape(t, m), `route="/a",status="4xx"} 1`)
	})

	t.Run("the connection can still be reached through the writer", func(t *testing.T) {
		t.Parallel()
		answer(t, telemetry.NewMetrics(build), "GET", "/a", func(w http.ResponseWriter) {
			require.NoError(t, http.NewResponseController(w).Flush())
		})
	})

	t.Run("the runtime, the process and the build are exported", func(t *testing.T) {
		t.Parallel()
		text := scrape(t, telemetry.NewMetrics(build))
		require.Contains(t, text, "go_goroutines")
		require.Contains(t, text, "process_open_fds")
		require.Contains(t, text, `comet_build_info{goversion="go1.26",revision="abc",version="v1.2.3"} 1`)
	})

	t.Run("other parts add their own", func(t *testing.T) {
		t.Parallel()
		m := telemetry.NewMetrics(build)
		m.Registerer().MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "comet_x", Help: "x"}, func() float64 { return 4 }))
		require.Contains(t, scrape(t, m), "comet_x 4")
	})

	t.Run("nothing is left in the global registry", func(t *testing.T) {
		t.Parallel()
		telemetry.NewMetrics(build)
		families, err := prometheus.DefaultGatherer.Gather()
		require.NoError(t, err)
		for _, f := range families {
			require.NotContains(t, f.GetName(), "comet")
		}
	})
}

// answer sends one request through the middleware.
func answer(t *testing.T, m *telemetry.Metrics, method, route string, handle func(http.ResponseWriter)) {
	t.Helper()
	h := m.Measure(func(*http.Request) string { return route })(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { handle(w) }))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), method, "/", nil))
}

type knowing struct{ *httptest.ResponseRecorder }

func (*knowing) Status() int { return http.StatusTeapot }

func BenchmarkMeasure(b *testing.B) {
	m := telemetry.NewMetrics(telemetry.Build{})
	h := m.Measure(func(*http.Request) string { return "/api/v1/agents/{agent_id}" })(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	w, r := &knowing{httptest.NewRecorder()}, httptest.NewRequestWithContext(b.Context(), http.MethodGet, "/", nil)
	for b.Loop() {
		h.ServeHTTP(w, r)
	}
}
