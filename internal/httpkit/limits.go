package httpkit

import (
	"cmp"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/go-chi/httprate"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"comet/internal/errs"
	"comet/internal/input"
)

// LimitOptions configures NewLimits; nil is the zero value.
type LimitOptions struct {
	// MaxFailures is how many wrong tokens and signatures an address may send in a minute before it
	// is throttled, default 10.
	MaxFailures int
	// RateLimit is how many requests a token may make in a RateWindow, default unlimited.
	RateLimit int
	// RateWindow is the window of RateLimit, default one minute.
	RateWindow time.Duration
	// MaxBytes limits the bytes in flight, default 24 MiB.
	MaxBytes int64
}

// Limits holds the counters of tokens and addresses. All APIs of a process share them.
type Limits struct {
	addresses *failureCounter[netip.Prefix]
	// agents counts invalid signatures by agent id.
	agents *failureCounter[string]
	// accepted has the tokens that were accepted, by hash; false for those whose signatures were
	// invalid since, which may be stolen.
	accepted *lru.Cache[[32]byte, bool]
	// rejected has the rejected cookies, by hash. It is separate, so that invalid cookies do not evict accepted tokens.
	rejected *lru.Cache[[32]byte, struct{}]
	rate     *rateLimit
	// Bytes limits bodies and frames.
	Bytes *BytesInFlight
}

// NewLimits returns limits without any counted request.
func NewLimits(opts *LimitOptions) *Limits {
	o := *cmp.Or(opts, &LimitOptions{})
	o.MaxFailures = cmp.Or(o.MaxFailures, 10)
	l := &Limits{
		addresses: newFailureCounter[netip.Prefix](o.MaxFailures), agents: newFailureCounter[string](o.MaxFailures),
		rate: newRateLimit(o.RateLimit, o.RateWindow), Bytes: NewBytesInFlight(o.MaxBytes),
	}
	l.accepted, _ = lru.New[[32]byte, bool](maxCounters) // New fails only for a size below 1
	l.rejected, _ = lru.New[[32]byte, struct{}](maxCounters)
	return l
}

const (
	// failureWindow is the time over which failures are counted.
	failureWindow = time.Minute
	// maxCounters limits the keys of a counter; the least recently used one is forgotten first.
	maxCounters = 10_000
	// attemptRate is how many unknown tokens per second a throttled address may still have verified.
	attemptRate = 20
)

// failureCounter counts failures by key and throttles keys that have too many.
type failureCounter[K comparable] struct {
	limit int

	mu     sync.Mutex
	counts *lru.Cache[K, *failureCount]
}

// failureCount counts the failures since a time.
type failureCount struct {
	count    int
	since    time.Time
	attempts *rate.Limiter
}

func newFailureCounter[K comparable](limit int) *failureCounter[K] {
	c := &failureCounter[K]{limit: limit}
	c.counts, _ = lru.New[K, *failureCount](maxCounters) // New fails only for a size below 1
	return c
}

// wait returns how long a key is throttled, 0 if it is not.
func (c *failureCounter[K]) wait(key K, now time.Time) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.counts.Get(key)
	if !ok || f.count < c.limit {
		return 0
	}
	return max(f.since.Add(failureWindow).Sub(now), 0)
}

func (c *failureCounter[K]) add(key K, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.counts.Get(key)
	if !ok || now.Sub(f.since) >= failureWindow {
		f = &failureCount{since: now, attempts: rate.NewLimiter(attemptRate, attemptRate)}
		c.counts.Add(key, f)
	}
	f.count++
}

// allowAttempt reports whether a throttled key may make another attempt now.
func (c *failureCounter[K]) allowAttempt(key K, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, ok := c.counts.Get(key)
	return !ok || f.attempts.AllowN(now, 1)
}

// retryAfter is the metadata key of an error with the time until a retry, an int in seconds.
const retryAfter = "retry_after"

// rateLimit limits the requests of each token in a sliding window; nil limits nothing.
type rateLimit struct {
	limit   int
	window  time.Duration
	limiter *httprate.RateLimiter
}

// newRateLimit returns a rate limit, nil for a limit of 0 or less.
func newRateLimit(limit int, window time.Duration) *rateLimit {
	if limit <= 0 {
		return nil
	}
	window = cmp.Or(window, time.Minute)
	return &rateLimit{limit, window, httprate.NewRateLimiter(limit, window, httprate.WithResponseHeaders(httprate.ResponseHeaders{
		Limit: "RateLimit-Limit", Remaining: "RateLimit-Remaining", Reset: "RateLimit-Reset",
	}))}
}

// count counts a request of a token and sets RateLimit-Limit, RateLimit-Remaining and
// RateLimit-Reset, in seconds. The error is errs.RateLimited with "retry_after" in seconds.
func (l *rateLimit) count(w http.ResponseWriter, r *http.Request, tokenID string) error {
	if l == nil {
		return nil
	}
	refused := l.limiter.OnLimit(w, r, tokenID)
	reset := secondsToReset(w.Header())
	if !refused {
		return nil
	}
	// The old window fades out of the sliding one at an even pace, and the limiter rounds: when
	// half a request has faded, one more is allowed.
	wait := reset + int(l.window.Seconds()/float64(2*l.limit)) + 1
	return errs.New(errs.RateLimited, "the limit is %d requests in %s; try again in %d s", l.limit, input.Duration(l.window), wait).
		With(retryAfter, wait)
}

// secondsToReset replaces the limiter's absolute time by the seconds from now.
func secondsToReset(h http.Header) int {
	at, err := strconv.ParseInt(h.Get("RateLimit-Reset"), 10, 64)
	if err != nil {
		return 0
	}
	seconds := max(0, int(math.Ceil(time.Until(time.Unix(at, 0)).Seconds())))
	h.Set("RateLimit-Reset", strconv.Itoa(seconds))
	return seconds
}
