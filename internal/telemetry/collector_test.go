package telemetry_test

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"comet/internal/telemetry"
)

// TestCollector: a collector receives the spans as OTLP over HTTP (ExportTraceServiceRequest).
func TestCollector(t *testing.T) {
	t.Parallel()
	received := make(chan []byte, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil && r.Method == http.MethodPost && r.URL.Path == "/v1/traces" && r.Header.Get("Content-Type") == "application/x-protobuf" {
			received <- body
		}
	}))
	defer server.Close()
	tracing, err := telemetry.NewTracing(&telemetry.TracingOptions{Endpoint: server.URL, Sample: 1, Build: telemetry.Build{Version: "v1.2.3"}})
	require.NoError(t, err)
	_, span := tracing.Tracer("test").Start(t.Context(), "digging")
	span.End()
	require.NoError(t, tracing.Stop(t.Context())) // sends what is left
	body := <-received
	number, kind, n := protowire.ConsumeTag(body)
	require.Equal(t, []any{protowire.Number(1), protowire.BytesType}, []any{number, kind})
	raw, m := protowire.ConsumeBytes(body[n:])
	require.Equal(t, len(body), n+m)
	var got tracepb.ResourceSpans
	require.NoError(t, proto.Unmarshal(raw, &got))
	require.Equal(t, "digging", got.GetScopeSpans()[0].GetSpans()[0].GetName())
	require.Equal(t, "comet", got.GetResource().GetAttributes()[0].GetValue().GetStringValue())
}

// TestCollectorThatFails: spans that a collector refuses are dropped and logged.
func TestCollectorThatFails(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
	defer server.Close()
	var log bytes.Buffer
	tracing, err := telemetry.NewTracing(&telemetry.TracingOptions{Endpoint: server.URL, Sample: 1, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	_, span := tracing.Tracer("test").Start(t.Context(), "digging")
	span.End()
	require.NoError(t, tracing.Stop(t.Context()))
	require.Contains(t, log.String(), "the collector responded with the status 503 Service Unavailable")
	for _, endpoint := range []string{"ftp://127.0.0.1", "127.0.0.1:4318", "http://"} {
		_, err := telemetry.NewTracing(&telemetry.TracingOptions{Endpoint: endpoint})
		require.Error(t, err, endpoint)
	}
}
