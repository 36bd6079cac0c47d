package api

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

// accessRecord is what later middlewares tell the access log of a request. It is
// the request's context at the same time: requestIDs makes both with one copy of
// the request, and the chain has no dearer part than these copies.
type accessRecord struct {
	context.Context
	tokenID string
}

type accessRecordKey struct{}

// Value implements context.Context.
func (a *accessRecord) Value(key any) any {
	if key == (accessRecordKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// noteToken tells the access log which token the request came with.
func noteToken(ctx context.Context, tokenID string) {
	if record, ok := ctx.Value(accessRecordKey{}).(*accessRecord); ok {
		record.tokenID = tokenID
	}
}

// accessLog stands inside requestIDs. It writes one line a request, without query string and headers, where
// secrets travel. Of the successes it writes every n-th, of the rest all.
func accessLog(log *slog.Logger, every int) func(http.Handler) http.Handler {
	var successes atomic.Uint64
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start, ww := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			finished := false
			// Deferred, because an aborted answer leaves as a panic.
			defer func() {
				status := ww.Status()
				if status == 0 && finished {
					status = http.StatusOK
				}
				success := finished && status < http.StatusBadRequest
				if success && every > 1 && successes.Add(1)%uint64(every) != 0 {
					return
				}
				logAccess(log, r, status, ww.BytesWritten(), time.Since(start))
			}()
			next.ServeHTTP(ww, r)
			finished = true
		})
	}
}

// logAccess writes the line; the logger adds the request id. Status 0 is an
// answer that was cut off.
func logAccess(log *slog.Logger, r *http.Request, status, bytes int, took time.Duration) {
	level := slog.LevelInfo
	if status == 0 || status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	if !log.Enabled(r.Context(), level) {
		return
	}
	attrs := [8]slog.Attr{
		slog.String("method", r.Method),
		slog.String("route", chi.RouteContext(r.Context()).RoutePattern()),
		slog.String("path", clipPath(r.URL.Path)),
		slog.Int("status", status),
		slog.Int("bytes", bytes),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.String("remote", r.RemoteAddr),
	}
	known := attrs[:7]
	if record, ok := r.Context().Value(accessRecordKey{}).(*accessRecord); ok && record.tokenID != "" {
		attrs[7] = slog.String("token_id", record.tokenID)
		known = attrs[:]
	}
	log.LogAttrs(r.Context(), level, "request", known...)
}
