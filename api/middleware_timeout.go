package api

import (
	"context"
	"net/http"
	"time"
)

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
			next.ServeHTTP(w, r.WithContext(context.WithValue(ctx, untimedKey{}, r.Context())))
		})
	}
}

// untimedKey is where timeout leaves the context that it found.
type untimedKey struct{}

// untimed returns r's context without the limit of timeout, for what has limits of its own;
// it ends when the client goes. Its body has to be read before. The answer may be written
// once done was called.
func untimed(w http.ResponseWriter, r *http.Request) (ctx context.Context, done func()) {
	outer, limited := r.Context().Value(untimedKey{}).(context.Context)
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
