package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/klauspost/compress/gzhttp"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/models"
)

// recoverPanics turns a panic into a 500 response and logs its stack. It closes the connection if
// part of the response has been sent, so that the client detects the truncation, and passes
// http.ErrAbortHandler on for the same purpose. It must be inside of httpkit.AccessLog, whose
// writer knows what has been sent.
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
				slog.String("method", r.Method), slog.String("path", httpkit.ClipPath(r.URL.Path)),
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

// securityHeaders forbids content sniffing and shared caches. Private caches may store a response
// and must revalidate it (If-None-Match). Handlers set no-store on responses with secrets.
func securityHeaders(next http.Handler) http.Handler {
	nosniff, cache := []string{"nosniff"}, []string{"private, no-cache"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h["X-Content-Type-Options"] = nosniff
		h["Cache-Control"] = cache
		next.ServeHTTP(w, r)
	})
}

// gzipMinSize is the size in bytes from which responses are compressed.
const gzipMinSize = 1024

// compress sends responses from gzipMinSize bytes as gzip to clients that accept it. The ETag of a
// compressed response ends in gzipSuffix. Event streams are not compressed, because compression
// delays events.
func compress() func(http.Handler) http.Handler {
	wrap, err := gzhttp.NewWrapper(
		gzhttp.MinSize(gzipMinSize), gzhttp.SuffixETag(gzipSuffix), gzhttp.EnableZstd(false),
		gzhttp.ContentTypeFilter(func(contentType string) bool {
			return !strings.HasPrefix(contentType, "text/event-stream") && gzhttp.DefaultContentTypeFilter(contentType)
		}))
	if err != nil {
		panic(err) // the options are constants; every test finds a wrong one
	}
	return func(next http.Handler) http.Handler { return wrap(next) }
}

// defaultTimeout is the time limit of a request.
const defaultTimeout = 30 * time.Second

// timeout sets a time limit on the context of requests, which handlers report as errs.Timeout, and
// on reading their bodies. Requests selected by except (nil: none) and protocol upgrades have no
// limit. A limit of 0 or less sets nothing.
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
				// A context does not interrupt a read: a body that stops arriving would hold the
				// request forever, even if no handler reads it, because the server reads it before
				// it responds. Only the response writers of tests do not support this.
				_ = http.NewResponseController(w).SetReadDeadline(deadline)
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, contextBeforeTimeoutKey{}, r.Context())))
		})
	}
}

// contextBeforeTimeoutKey is the key of the context without the limit that timeout sets.
type contextBeforeTimeoutKey struct{}

// withoutTimeout returns r's context without the limit of timeout, for operations with limits of
// their own; it ends when the client disconnects. The caller must have read the body before, and
// must call done before it writes the response.
func withoutTimeout(w http.ResponseWriter, r *http.Request) (ctx context.Context, done func()) {
	outer, limited := r.Context().Value(contextBeforeTimeoutKey{}).(context.Context)
	if !limited {
		return r.Context(), func() {}
	}
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Time{}) // only the response writers of tests do not support this
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(outer, cancel)
	return ctx, func() {
		stop()
		cancel()
		_ = out.SetWriteDeadline(time.Now().Add(defaultTimeout))
	}
}

// authenticate accepts requests with a valid bearer token or the cookie of a login, and puts their principal into the
// context.
func (s *Server) authenticate(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		from, err := s.authenticator.Authenticate(w, r)
		if err != nil {
			return httpkit.AsRateLimited(err)
		}
		next.ServeHTTP(w, r.WithContext(auth.With(r.Context(), from.Principal)))
		return nil
	})
}

// confine rejects a request with a token that is bound to an agent if the agent in its path is neither
// that agent nor below it.
func (s *Server) confine(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		path, err := readPath(r)
		if err == nil && chi.URLParam(r, "agent_id") != "" {
			err = s.core.Registry.Confine(r.Context(), path.caller, path.id)
		}
		if err == nil {
			next.ServeHTTP(w, r)
		}
		return err
	})
}

// confineAdmin returns errs.ForeignAgent if an administrator whose token is bound to an agent requests an
// operation on the whole system, for which agentID is "", or a change of that agent itself.
func confineAdmin(by models.Principal, method, agentID string) error {
	switch {
	case by.Administers():
		return nil
	case agentID == "":
		return errs.New(errs.ForeignAgent, "this token is bound to the agent %q, and the operation concerns the whole system", *by.AgentID)
	case agentID == *by.AgentID && method != http.MethodGet && method != http.MethodHead:
		return errs.New(errs.ForeignAgent, "this token is bound to the agent %q and may change only the agents below it", agentID)
	}
	return nil
}

// require accepts requests whose token has the scope or one of the others.
func (s *Server) require(scope models.Scope, others ...models.Scope) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return s.handle(func(w http.ResponseWriter, r *http.Request) error {
			err := auth.Require(caller(r), scope, others...)
			if err == nil && scope == models.ScopeAdmin {
				path, _ := readPath(r) // confine has checked it
				if chi.URLParam(r, "agent_id") == "" {
					path.id = ""
				}
				err = confineAdmin(path.caller, r.Method, path.id)
			}
			if err == nil {
				next.ServeHTTP(w, r)
			}
			return err
		})
	}
}
