package bench

import (
	"context"
	"io"
	"log/slog"
	"testing"
	"time"

	"comet/internal/requestid"
	"comet/internal/telemetry"
)

func BenchmarkLogScratch(b *testing.B) {
	ctx := requestid.With(context.Background(), "01890a5d-ac96-774b-bcce-b302099a8057")
	log, _ := telemetry.NewLogger(io.Discard, &telemetry.LogOptions{Format: "json"})
	mk := func() [9]slog.Attr {
		return [9]slog.Attr{
			slog.String("method", "GET"),
			slog.String("route", "/api/v1/agents/{agent_id}"),
			slog.String("path", "/api/v1/agents/specialist-000001"),
			slog.Int("status", 200),
			slog.Int("bytes", 312),
			slog.Float64("duration_ms", float64(1234)/1000),
			slog.String("remote", "127.0.0.1:53422"),
			slog.String("token_id", "bootstrap-admin"),
			slog.String("request_id", "01890a5d-ac96-774b-bcce-b302099a8057"),
		}
	}
	b.Run("now", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a := mk()
			log.LogAttrs(ctx, slog.LevelInfo, "request", a[:8]...)
		}
	})
	b.Run("nopc", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a := mk()
			r := slog.NewRecord(time.Now(), slog.LevelInfo, "request", 0)
			r.AddAttrs(a[:8]...)
			_ = log.Handler().Handle(ctx, r)
		}
	})
	b.Run("nopc+noclone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a := mk()
			r := slog.NewRecord(time.Now(), slog.LevelInfo, "request", 0)
			r.AddAttrs(a[:]...)
			_ = log.Handler().Handle(context.Background(), r)
		}
	})
	b.Run("nopc+noclone+int", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			a := mk()
			a[5] = slog.Int("duration_us", 1234)
			r := slog.NewRecord(time.Now(), slog.LevelInfo, "request", 0)
			r.AddAttrs(a[:]...)
			_ = log.Handler().Handle(context.Background(), r)
		}
	})
}
