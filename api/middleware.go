package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/go-chi/httprate"
	"github.com/google/uuid"
	"github.com/klauspost/compress/gzhttp"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/requestid"
	"comet/models"
)

// maxRequestID is the longest id taken over from a client, in bytes.
const maxRequestID = 64

// requestIDs gives every request an id: the client's own X-Request-Id where it
// is short and plain, else a fresh one. It is in the context and in the answer.
// The record of accessLog goes into the same context, because each context of its
// own costs a copy of the request.
// The context also takes what accessLog will want to know.
func requestIDs(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.Header.Get("X-Request-Id")
		if !isPlainID(id) {
			id = newID()
		}
		w.Header().Set("X-Request-Id", id)
		next.ServeHTTP(w, r.WithContext(&accessRecord{Context: requestid.With(r.Context(), id)}))
	})
}

// isPlainID reports whether a client's id consists of 1 to maxRequestID of the
// characters A-Z a-z 0-9 . _ and -, which are safe in any log.
func isPlainID(id string) bool {
	return id != "" && len(id) <= maxRequestID && !strings.ContainsFunc(id, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	})
}

// newID returns a UUIDv7, or a random one should the clock fail.
func newID() string {
	id, err := uuid.NewV7()
	if err != nil {
		return uuid.NewString()
	}
	return id.String()
}

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

// recordTokenID tells the access log which token the request came with.
func recordTokenID(ctx context.Context, tokenID string) {
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

// recoverPanics turns a panic into a 500 and logs its stack. Where a part of the
// answer is out already the connection is cut, so that nobody takes half an
// answer for a whole one; http.ErrAbortHandler passes through for the same end.
// It stands directly inside accessLog, whose writer knows what is out.
func (p *responder) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if err, ok := v.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(v)
			}
			p.log.LogAttrs(r.Context(), slog.LevelError, "panic in a handler",
				slog.String("method", r.Method), slog.String("path", clipPath(r.URL.Path)),
				slog.String("panic", fmt.Sprint(v)), slog.String("stack", string(debug.Stack())))
			if started, ok := w.(interface{ Status() int }); ok && started.Status() != 0 {
				panic(http.ErrAbortHandler)
			}
			p.writeProblem(w, r, http.StatusInternalServerError,
				toKnownError(r.Context(), errs.New(errs.Internal, "panic")))
		}()
		next.ServeHTTP(w, r)
	})
}

// securityHeaders keeps browsers from guessing types and caches from sharing what
// a token could see: an answer may be kept, but is asked for again (If-None-Match)
// before it is used. Answers with secrets say no-store themselves.
func securityHeaders(next http.Handler) http.Handler {
	nosniff, cache := []string{"nosniff"}, []string{"private, no-cache"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Content-Type-Options"] = nosniff
		h["Cache-Control"] = cache
		next.ServeHTTP(w, r)
	})
}

// gzipMinSize is the smallest answer worth compressing, in bytes.
const gzipMinSize = 1024

// compress sends answers of gzipMinSize and more as gzip where the client takes
// it. The ETag of a compressed answer ends in gzipSuffix. Event streams are left
// alone: they must leave at once.
func compress() func(http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(gzipMinSize), gzhttp.SuffixETag(gzipSuffix), gzhttp.EnableZstd(false),
		gzhttp.ContentTypeFilter(func(contentType string) bool {
			return !strings.HasPrefix(contentType, "text/event-stream") && gzhttp.DefaultContentTypeFilter(contentType)
		}))
	if err != nil {
		panic(err) // the options are constants; any test finds a wrong one
	}
	return func(next http.Handler) http.Handler { return wrap(next) }
}

// defaultTimeout is how long a request may take.
const defaultTimeout = 30 * time.Second

// timeout ends a request's context after limit, which handlers report as
// errs.Timeout, and the wait for its body. Requests that except selects (nil: none) are streams and have no
// end of their own, as have those that ask to change the protocol. A limit of 0
// or less sets nothing.
func timeout(limit time.Duration, except func(*http.Request) bool) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if limit <= 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") != "" || except != nil && except(r) {
				next.ServeHTTP(w, r)
				return
			}
			ctx, cancel := context.WithTimeout(r.Context(), limit)
			defer cancel()
			if deadline, ok := ctx.Deadline(); ok && r.ContentLength != 0 {
				// A context does not interrupt a read: a body that stops coming would
				// hold the request for ever, also one that nobody reads, which the
				// server waits for before it answers. Only a test's writer cannot do this.
				_ = http.NewResponseController(w).SetReadDeadline(deadline)
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, contextBeforeTimeoutKey{}, r.Context())))
		})
	}
}

// contextBeforeTimeoutKey is where timeout leaves the context that it found.
type contextBeforeTimeoutKey struct{}

// withoutTimeout returns r's context without the limit of timeout, for what has limits of its own;
// it ends when the client goes. Its body has to be read before. The answer may be written
// once done was called.
func withoutTimeout(w http.ResponseWriter, r *http.Request) (ctx context.Context, done func()) {
	outer, limited := r.Context().Value(contextBeforeTimeoutKey{}).(context.Context)
	if !limited {
		return r.Context(), func() {}
	}
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Time{}) // only a test's writer cannot do this
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(outer, cancel)
	return ctx, func() {
		stop()
		cancel()
		_ = out.SetWriteDeadline(time.Now().Add(defaultTimeout))
	}
}

// authenticate lets requests with a valid bearer token through and puts who they
// come from into their context.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		secret, err := bearer(r.Header["Authorization"])
		if err != nil {
			return err
		}
		p, err := s.auth.Verify(r.Context(), secret)
		if err != nil {
			return err
		}
		recordTokenID(r.Context(), p.TokenID)
		next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), p)))
		return nil
	})
}

// bearer reads the token of an Authorization header (RFC 6750 §2.1).
func bearer(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", errs.New(errs.Unauthenticated, "send a token as \"Authorization: Bearer <token>\"")
	}
	scheme, secret, ok := strings.Cut(lines[0], " ")
	secret = strings.TrimSpace(secret)
	if len(lines) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > models.MaxTokenLength {
		return "", errs.New(errs.Unauthenticated, "the Authorization header must be \"Bearer <token>\"")
	}
	return secret, nil
}

// require lets callers with the scope through.
func (s *Server) require(scope models.Scope) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return s.handle(func(w http.ResponseWriter, r *http.Request) error {
			if err := auth.Require(caller(r), scope); err != nil {
				return err
			}
			next.ServeHTTP(w, r)
			return nil
		})
	}
}

func principalFrom(ctx context.Context) models.Principal {
	p, _ := auth.From(ctx)
	return p
}

// rateLimit lets each token make so many requests a window, counted over a sliding
// window. nil limits nothing.
type rateLimit struct {
	limit   int
	window  time.Duration
	limiter *httprate.RateLimiter
}

// newRateLimit returns a limit, nil for one of 0 or less.
func newRateLimit(limit int, window time.Duration) *rateLimit {
	if limit <= 0 {
		return nil
	}
	return &rateLimit{limit, window, httprate.NewRateLimiter(limit, window, httprate.WithResponseHeaders(httprate.ResponseHeaders{
		Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset",
	}))}
}

// count counts a request of a token. The answer tells where the caller stands:
// RateLimit-Limit, RateLimit-Remaining, and RateLimit-Reset in seconds. The error is
// errs.RateLimited with "retry_after" in seconds.
func (l *rateLimit) count(w http.ResponseWriter, r *http.Request, tokenID string) error {
	if l == nil {
		return nil
	}
	refused := l.limiter.OnLimit(w, r, tokenID)
	reset := secondsToReset(w.Header())
	if !refused {
		return nil
	}
	// The old window fades out of the sliding one at an even pace, and the
	// limiter rounds: when half a request has faded there is room for one.
	wait := reset + int(l.window.Seconds()/float64(2*l.limit)) + 1
	return errs.New(errs.RateLimited, "the limit is %d requests in %s; try again in %d s", l.limit, input.Duration(l.window), wait).
		With("retry_after", wait)
}

// limitRate lets the requests through that a limit admits. tokenID reads the token's id
// from the context, so authentication comes first and requests without a valid token
// are not counted.
func (p *responder) limitRate(l *rateLimit, tokenID func(context.Context) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if l == nil {
			return next
		}
		return p.handle(func(w http.ResponseWriter, r *http.Request) error {
			if err := l.count(w, r, tokenID(r.Context())); err != nil {
				return err
			}
			next.ServeHTTP(w, r)
			return nil
		})
	}
}

// Admit is for the rooms behind MountPublic, once they know whose token a request has:
// the access log says it, and the request counts towards the token's limit. The error is
// errs.RateLimited with "retry_after" in seconds.
func (s *Server) Admit(w http.ResponseWriter, r *http.Request, tokenID string) error {
	recordTokenID(r.Context(), tokenID)
	return s.rateLimit.count(w, r, tokenID)
}

// secondsToReset turns the limiter's absolute time into seconds from now.
func secondsToReset(h http.Header) int {
	at, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64)
	if err != nil {
		return 0
	}
	seconds := max(0, int(math.Ceil(time.Until(time.Unix(at, 0)).Seconds())))
	h.Set("RateLimit-Reset", strconv.Itoa(seconds))
	return seconds
}
