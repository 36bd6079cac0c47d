package mcp

import (
	"context"
	"log/slog"
	"strings"
)

// sdkLogger is a logger for the SDK, which tells of each connection at its beginning and its end:
// without sessions that is three lines a request, and every request is in the access log.
func sdkLogger(log *slog.Logger) *slog.Logger { return slog.New(warningHandler{log.Handler()}) }

// warningHandler lets through what is at least a warning.
type warningHandler struct{ slog.Handler }

func (h warningHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && h.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler. That a client has gone that was to be told of something, or
// that comet is told to stop, is no failure.
func (h warningHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == "server run cancelled" || strings.HasPrefix(r.Message, "calling notifications/") {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h warningHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warningHandler{h.Handler.WithAttrs(attrs)}
}

func (h warningHandler) WithGroup(name string) slog.Handler {
	return warningHandler{h.Handler.WithGroup(name)}
}
