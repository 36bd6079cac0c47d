package httpkit

import (
	"context"
	"encoding/binary"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/google/uuid"

	"comet/internal/input"
	"comet/internal/requestid"
	"comet/internal/telemetry"
)

// maxRequestID is the longest id that is accepted from a client, in bytes.
const maxRequestID = 64

// RequestIDs is a middleware that gives every request an id, which is in the context and in the
// response: the client's own X-Request-Id if it is short and plain, else a new one.
func RequestIDs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !isPlainID(id) {
			id = newRequestID()
		}
		w.Header().Set("X-Request-Id", id)
		ctx := requestid.With(r.Context(), id)
		requestid.Add(ctx, slog.String("trace_id", telemetry.TraceID(Traceparent(r))))
		next.ServeHTTP(w, r.WithContext(&accessRecord{Context: ctx}))
	})
}

// isPlainID reports whether a client's id consists of 1 to maxRequestID of the characters A-Z a-z
// 0-9 . _ and -, which are safe in any log.
func isPlainID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	})
}

// newRequestID returns a UUIDv7 (RFC 9562 §5.7). It need not be secret, so its random bits are
// those of a fast generator.
func newRequestID() string {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], uint64(time.Now().UnixMilli())<<16|7<<12|rand.Uint64()>>52)
	binary.BigEndian.PutUint64(id[8:], 1<<63|rand.Uint64()>>2)
	return id.String()
}

// accessRecord carries data from later middlewares to the access log. It is the context of the
// request at the same time, so that RequestIDs copies the request only once; these copies are the
// most expensive part of the chain.
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

// logToken adds the token of a request to the access log.
func logToken(ctx context.Context, tokenID string) {
	if record, ok := ctx.Value(accessRecordKey{}).(*accessRecord); ok {
		record.tokenID = tokenID
	}
}

// AccessLog returns a middleware that logs each request, without query string and headers, which
// may hold secrets. It logs every n-th success and all failures. It belongs inside RequestIDs.
func AccessLog(log *slog.Logger, every int) func(http.Handler) http.Handler {
	var successes atomic.Uint64
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			start, ww := time.Now(), middleware.NewWrapResponseWriter(w, r.ProtoMajor)
			finished := false
			// Deferred, because a response that is aborted ends in a panic.
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

// logAccess writes one log entry; the logger adds the request id. Status 0 is a response that was
// aborted.
func logAccess(log *slog.Logger, r *http.Request, status, bytes int, took time.Duration) {
	level := slog.LevelInfo
	if status == 0 || status >= http.StatusInternalServerError {
		level = slog.LevelWarn
	}
	if !log.Enabled(r.Context(), level) {
		return
	}
	// Without the program counter of the call, which costs a stack walk.
	record := slog.NewRecord(time.Now(), level, "request", 0)
	attrs := [8]slog.Attr{
		slog.String("method", r.Method),
		slog.String("route", chi.RouteContext(r.Context()).RoutePattern()),
		slog.String("path", ClipPath(r.URL.Path)),
		slog.Int("status", status),
		slog.Int("bytes", bytes),
		slog.Float64("duration_ms", float64(took.Microseconds())/1000),
		slog.String("remote", r.RemoteAddr),
	}
	known := attrs[:7]
	if access, ok := r.Context().Value(accessRecordKey{}).(*accessRecord); ok && access.tokenID != "" {
		known = append(known, slog.String("token_id", access.tokenID))
	}
	record.AddAttrs(known...)
	_ = log.Handler().Handle(r.Context(), record) // ignored, as slog.Logger does
}

// ClipPath bounds a path in logs and problem documents.
func ClipPath(path string) string { return input.ClipTo(path, 512) }
