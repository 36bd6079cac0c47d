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

// rateLimit lets each token make limit requests a window, counted over a sliding
// window. tokenID reads the token's id from the context, so authentication comes
// first and requests without a valid token are not counted. Every answer
// tells where the caller stands: RateLimit-Limit, RateLimit-Remaining, and
// RateLimit-Reset in seconds. A limit of 0 or less limits nothing.
func (p *responder) rateLimit(limit int, window time.Duration, tokenID func(context.Context) string) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		if limit <= 0 {
			return next
		}
		limiter := httprate.NewRateLimiter(limit, window, httprate.WithResponseHeaders(httprate.ResponseHeaders{
			Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset",
		}))
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			refused := limiter.OnLimit(w, r, tokenID(r.Context()))
			reset := secondsToReset(w.Header())
			if !refused {
				next.ServeHTTP(w, r)
				return
			}
			// The old window fades out of the sliding one at an even pace, and the
			// limiter rounds: when half a request has faded there is room for one.
			wait := reset + int(window.Seconds()/float64(2*limit)) + 1
			p.fail(w, r, errs.New(errs.RateLimited, "the limit is %d requests in %s; try again in %d s", limit, words.Duration(window), wait).
				With("retry_after", wait))
		})
	}
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
