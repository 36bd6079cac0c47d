package telemetry

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/chi/v5/middleware"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the metrics that /metrics serves. They have a separate registry, so that two
// servers in one process (or one test binary) do not share metrics.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	inFlight prometheus.Gauge
	failures *prometheus.CounterVec
}

// NewMetrics returns metrics that include those of the Go runtime, the process and the
// build.
func NewMetrics(build Build) *Metrics {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	create := promauto.With(reg)
	create.NewGauge(prometheus.GaugeOpts{
		Name: "comet_build_info",
		Help: "Constant 1, labelled with the build that is running.",
		ConstLabels: prometheus.Labels{
			"version": build.Version, "revision": build.Revision, "goversion": build.Go,
		},
	}).Set(1)
	return &Metrics{
		registry: reg,
		requests: create.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_http_requests_total",
			Help: "HTTP requests answered, by route pattern, method and status class.",
		}, []string{"route", "method", "status"}),
		duration: create.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "comet_http_request_duration_seconds",
			Help:    "Time from the first byte of a request to the last of its answer, by route pattern and method.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}, []string{"route", "method"}),
		inFlight: create.NewGauge(prometheus.GaugeOpts{
			Name: "comet_http_requests_in_flight",
			Help: "HTTP requests being answered now.",
		}),
		failures: create.NewCounterVec(prometheus.CounterOpts{
			Name: "comet_failures_total",
			Help: "Requests that failed, by API and error code.",
		}, []string{"api", "code"}),
	}
}

// Registerer returns the registry to which other packages add their metrics.
func (m *Metrics) Registerer() prometheus.Registerer { return m.registry }

// CountFailure counts a request to an API, such as "rest", that failed. code is an error code of
// package errs or of the API, whose number of values must be bounded.
func (m *Metrics) CountFailure(api, code string) { m.failures.WithLabelValues(api, code).Inc() }

// Measure returns a middleware that counts and times requests. route is called after the
// handler has returned; it returns the pattern of the route, "" if no route matched, and
// never the path, which has an unbounded number of values. If the writer of an outer
// middleware records the status, that writer is used.
func (m *Metrics) Measure(route func(*http.Request) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			started, finished := time.Now(), false
			known, ok := w.(statusWriter)
			if !ok {
				known = middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			}
			m.inFlight.Inc()
			// Deferred, because a panic is an answer too.
			defer func() {
				m.inFlight.Dec()
				status := known.Status()
				switch {
				case status == 0 && finished:
					status = http.StatusOK
				case !finished:
					status = http.StatusInternalServerError
				}
				name, method := cmp.Or(route(r), "unmatched"), knownMethod(r.Method)
				m.requests.WithLabelValues(name, method, statusClass(status)).Inc()
				m.duration.WithLabelValues(name, method).Observe(time.Since(started).Seconds())
			}()
			next.ServeHTTP(known, r)
			finished = true
		})
	}
}

// statusWriter is a writer that records the status that was sent, 0 for none yet.
type statusWriter interface {
	http.ResponseWriter
	Status() int
}

// Handler serves the metrics in the form the client asks for.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry, DisableCompression: true})
}

// knownMethod prevents clients from creating labels with invented methods.
func knownMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return method
	}
	return "other"
}

func statusClass(status int) string {
	if status < 100 || status > 599 {
		return "other"
	}
	return strconv.Itoa(status/100) + "xx"
}
