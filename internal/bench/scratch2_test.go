package bench

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"comet/internal/requestid"
	"comet/internal/telemetry"
)

func BenchmarkLogScratch(b *testing.B) {
	ctx := requestid.With(context.Background(), "01890a5d-ac96-774b-bcce-b302099a8057")
	do := func(b *testing.B, log *slog.Logger) {
		b.ReportAllocs()
		for b.Loop() {
			attrs := [8]slog.Attr{
				slog.String("method", "GET"),
				slog.String("route", "/api/v1/agents/{agent_id}"),
				slog.String("path", "/api/v1/agents/specialist-000001"),
				slog.Int("status", 200),
				slog.Int("bytes", 312),
				slog.Float64("duration_ms", float64(1234)/1000),
				slog.String("remote", "127.0.0.1:53422"),
				slog.String("token_id", "bootstrap-admin"),
			}
			log.LogAttrs(ctx, slog.LevelInfo, "request", attrs[:]...)
		}
	}
	file, _ := os.Create(filepath.Join(b.TempDir(), "access.log"))
	b.Run("ours-file", func(b *testing.B) { l, _ := telemetry.NewLogger(file, &telemetry.LogOptions{Format: "json"}); do(b, l) })
	b.Run("ours-discard", func(b *testing.B) {
		l, _ := telemetry.NewLogger(io.Discard, &telemetry.LogOptions{Format: "json"})
		do(b, l)
	})
	b.Run("slog-discard", func(b *testing.B) { do(b, slog.New(slog.NewJSONHandler(io.Discard, nil))) })
	line := []byte(`{"time":"2026-11-21T02:59:14.123456789Z","level":"INFO","msg":"request","method":"GET","route":"/api/v1/agents/{agent_id}","path":"/api/v1/agents/specialist-000001","status":200,"bytes":312,"duration_ms":1.234,"remote":"127.0.0.1:53422","token_id":"bootstrap-admin","request_id":"01890a5d-ac96-774b-bcce-b302099a8057"}` + "\n")
	b.Run("file", func(b *testing.B) {
		for b.Loop() {
			file.Write(line)
		}
	})
	null, _ := os.OpenFile("/dev/null", os.O_WRONLY, 0)
	b.Run("devnull", func(b *testing.B) {
		for b.Loop() {
			null.Write(line)
		}
	})
	_ = time.Now
}
