package telemetry_test

import (
	"io"
	"log/slog"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/requestid"
	"comet/internal/telemetry"
)

// BenchmarkAccessRecord is the cost of the record of one request.
func BenchmarkAccessRecord(b *testing.B) {
	file, err := os.Create(b.TempDir() + "/log")
	require.NoError(b, err)
	defer func() { _ = file.Close() }()
	for name, w := range map[string]io.Writer{"discard": io.Discard, "file": file, "buffered": telemetry.NewBuffer(file)} {
		log, err := telemetry.NewLogger(w, &telemetry.LogOptions{Format: "json"})
		require.NoError(b, err)
		ctx := requestid.With(b.Context(), "0196f7c4-3b1e-7cc0-a1b2-c3d4e5f60718")
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				attrs := [8]slog.Attr{
					slog.String("method", "GET"), slog.String("route", "/api/v1/agents/{agent_id}"), slog.String("path", "/api/v1/agents/assistant-00017-3"),
					slog.Int("status", 200), slog.Int("bytes", 711), slog.Float64("duration_ms", 0.213), slog.String("remote", "127.0.0.1:43210"),
					slog.String("token_id", "0196f7c4-3b1e-7cc0-a1b2-c3d4e5f60718"),
				}
				log.LogAttrs(ctx, slog.LevelInfo, "request", attrs[:]...)
			}
		})
	}
}
