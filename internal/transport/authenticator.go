package transport

import (
	"context"
	"crypto/sha256"
	"math"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/prometheus/client_golang/prometheus"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/models"
)

const (
	// failureWindow is the time over which failures are counted.
	failureWindow = time.Minute
	// maxRemembered limits each of the caches below.
	maxRemembered = 10_000
)

// authenticator verifies tokens and throttles addresses that try many tokens. A token that was
// accepted before is always verified, because several agents may share an address.
type authenticator struct {
	auth          *auth.Auth
	maxFailures   int
	clock         func() time.Time
	failuresTotal prometheus.Counter

	mu       sync.Mutex
	failures *lru.Cache[netip.Prefix, failureCount]
	// badSignatures counts invalid signatures by agent id.
	badSignatures *lru.Cache[string, failureCount]
	accepted      *lru.Cache[[32]byte, struct{}]
}

// failureCount counts the failures since a time.
type failureCount struct {
	count int
	since time.Time
}

func newAuthenticator(tokens *auth.Auth, maxFailures int, clock func() time.Time, failuresTotal prometheus.Counter) *authenticator {
	a := &authenticator{auth: tokens, maxFailures: maxFailures, clock: clock, failuresTotal: failuresTotal}
	a.failures, _ = lru.New[netip.Prefix, failureCount](maxRemembered) // New fails only for a size below 1
	a.badSignatures, _ = lru.New[string, failureCount](maxRemembered)
	a.accepted, _ = lru.New[[32]byte, struct{}](maxRemembered)
	return a
}

// authenticate returns the principal of a request and its token. The errors are those of
// verifyToken.
func (a *authenticator) authenticate(r *http.Request) (models.Principal, string, error) {
	token, err := bearerToken(r.Header["Authorization"])
	if err != nil {
		return models.Principal{}, "", err
	}
	p, err := a.verifyToken(r.Context(), token, clientPrefix(r))
	return p, token, err
}

// verifyToken returns the principal of a token that came from an address. A token that is not
// accepted is errs.Unauthenticated or errs.AgentInactive. If the address is throttled, the error is
// errs.Unauthenticated with "retry_after", which reveals nothing about the token.
func (a *authenticator) verifyToken(ctx context.Context, token string, from netip.Prefix) (models.Principal, error) {
	hash := sha256.Sum256([]byte(token))
	if !a.accepted.Contains(hash) {
		if wait := a.addressThrottle(from); wait > 0 {
			return models.Principal{}, errs.New(errs.Unauthenticated, "too many rejected tokens from this address").
				With(retryAfter, int(math.Ceil(wait.Seconds())))
		}
	}
	p, err := a.auth.Verify(ctx, token)
	switch {
	case err == nil:
		a.accepted.Add(hash, struct{}{})
	case isRejected(err):
		a.accepted.Remove(hash)
		a.countFailure(from)
	}
	return p, err
}

// retryAfter is the metadata key of an error that says when to try again, an int in seconds.
const retryAfter = "retry_after"

// isThrottled reports whether the token was not checked because its address is throttled.
func isThrottled(err error) bool {
	e := errs.From(err)
	return e.Code == errs.Unauthenticated && e.Meta[retryAfter] != nil
}

// isRejected reports whether a token was checked and not accepted, as opposed to a failed lookup.
func isRejected(err error) bool {
	return errs.Is(err, errs.Unauthenticated) || errs.Is(err, errs.AgentInactive)
}

// addressThrottle returns how long an address must wait, 0 for not at all.
func (a *authenticator) addressThrottle(from netip.Prefix) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return throttleOf(a.failures, from, a.maxFailures, a.clock())
}

// throttleOf returns how long key must wait after limit failures.
func throttleOf[K comparable](counts *lru.Cache[K, failureCount], key K, limit int, now time.Time) time.Duration {
	f, ok := counts.Get(key)
	if !ok || f.count < limit {
		return 0
	}
	return max(f.since.Add(failureWindow).Sub(now), 0)
}

func (a *authenticator) countFailure(from netip.Prefix) {
	a.failuresTotal.Inc()
	a.mu.Lock()
	defer a.mu.Unlock()
	addFailure(a.failures, from, a.clock())
}

func addFailure[K comparable](counts *lru.Cache[K, failureCount], key K, now time.Time) {
	f, ok := counts.Get(key)
	if !ok || now.Sub(f.since) >= failureWindow {
		f = failureCount{since: now}
	}
	f.count++
	counts.Add(key, f)
}

// clientPrefix returns the address of a request: an IPv4 address, or the /64 of an IPv6 address,
// which one subscriber usually has.
func clientPrefix(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	return subscriberPrefix(addr)
}

// subscriberPrefix returns the prefix by which failures of an address are counted.
func subscriberPrefix(addr netip.Addr) netip.Prefix {
	addr = addr.WithZone("").Unmap()
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // the number of bits is valid for the address
	return p
}

// bearerToken returns the token of an Authorization header (RFC 6750 §2.1).
func bearerToken(values []string) (string, error) {
	if len(values) != 1 {
		return "", errs.New(errs.Unauthenticated, "send one token as \"Authorization: Bearer <token>\"")
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > models.MaxTokenLength {
		return "", errs.New(errs.Unauthenticated, "the Authorization header must be \"Bearer <token>\"")
	}
	return token, nil
}
