package api

import (
	"context"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-chi/httprate"

	"comet/internal/errs"
	"comet/internal/words"
)

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

// take counts a request of a token. The answer tells where the caller stands:
// RateLimit-Limit, RateLimit-Remaining, and RateLimit-Reset in seconds. The error is
// errs.RateLimited with "retry_after" in seconds.
func (l *rateLimit) take(w http.ResponseWriter, r *http.Request, tokenID string) error {
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
	return errs.New(errs.RateLimited, "the limit is %d requests in %s; try again in %d s", l.limit, words.Duration(l.window), wait).
		With("retry_after", wait)
}

// limited lets the requests through that a limit admits. tokenID reads the token's id
// from the context, so authentication comes first and requests without a valid token
// are not counted.
func (p *responder) limited(l *rateLimit, tokenID func(context.Context) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if l == nil {
			return next
		}
		return p.handle(func(w http.ResponseWriter, r *http.Request) error {
			if err := l.take(w, r, tokenID(r.Context())); err != nil {
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
	noteToken(r.Context(), tokenID)
	return s.limit.take(w, r, tokenID)
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
