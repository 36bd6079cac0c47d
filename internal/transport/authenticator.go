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
	// failureWindow is the time over which failures of an address are counted.
	failureWindow = time.Minute
	// maxRemembered bounds the addresses that failed, and the tokens that did not.
	maxRemembered = 10_000
)

// authenticator verifies tokens, and does not let an address try one after the other. A token
// that was accepted before is verified in any case: others may share its address.
type authenticator struct {
	auth          *auth.Auth
	maxFailures   int
	clock         func() time.Time
	failuresTotal prometheus.Counter

	mu       sync.Mutex
	failures *lru.Cache[netip.Prefix, failureCount]
	// badSignatures are the signatures that were wrong, by the agent.
	badSignatures *lru.Cache[string, failureCount]
	accepted      *lru.Cache[[32]byte, struct{}]
}

// failureCount is how often an address has failed since a time.
type failureCount struct {
	count int
	since time.Time
}

func newAuthenticator(a *auth.Auth, most int, clock func() time.Time, failed prometheus.Counter) *authenticator {
	d := &authenticator{auth: a, maxFailures: most, clock: clock, failuresTotal: failed}
	d.failures, _ = lru.New[netip.Prefix, failureCount](maxRemembered) // fails only for a size that is not positive
	d.badSignatures, _ = lru.New[string, failureCount](maxRemembered)
	d.accepted, _ = lru.New[[32]byte, struct{}](maxRemembered)
	return d
}

// authenticate returns who makes a request, and the token that says it. The errors are those
// of verify.
func (d *authenticator) authenticate(r *http.Request) (models.Principal, string, error) {
	token, err := bearerToken(r.Header["Authorization"])
	if err != nil {
		return models.Principal{}, "", err
	}
	p, err := d.verifyToken(r.Context(), token, clientPrefix(r))
	return p, token, err
}

// verifyToken returns whose token it is that came from an address. It is
// errs.Unauthenticated or errs.AgentInactive for one that is not accepted. Where the
// address has shown too many of those it is errs.Unauthenticated with "retry_after":
// whoever tries tokens is not told more than that the last one was wrong.
func (d *authenticator) verifyToken(ctx context.Context, token string, from netip.Prefix) (models.Principal, error) {
	hash := sha256.Sum256([]byte(token))
	if !d.accepted.Contains(hash) {
		if wait := d.addressThrottle(from); wait > 0 {
			return models.Principal{}, errs.New(errs.Unauthenticated, "too many tokens from here were not accepted").
				With(retryAfter, int(math.Ceil(wait.Seconds())))
		}
	}
	p, err := d.auth.Verify(ctx, token)
	switch {
	case err == nil:
		d.accepted.Add(hash, struct{}{})
	case isRejected(err):
		d.accepted.Remove(hash)
		d.countFailure(from)
	}
	return p, err
}

// retryAfter is the detail of an error that says when to try again, an int in seconds.
const retryAfter = "retry_after"

// isThrottled tells the token that was not looked up from one that was and is not accepted.
func isThrottled(err error) bool {
	e := errs.From(err)
	return e.Code == errs.Unauthenticated && e.Meta[retryAfter] != nil
}

// isRejected tells a token that is not accepted from one that could not be looked up.
func isRejected(err error) bool {
	return errs.Is(err, errs.Unauthenticated) || errs.Is(err, errs.AgentInactive)
}

// addressThrottle is how long an address has to wait, 0 for not at all.
func (d *authenticator) addressThrottle(from netip.Prefix) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return throttleOf(d.failures, from, d.maxFailures, d.clock())
}

// throttleOf is how long somebody has to wait who may fail most times.
func throttleOf[K comparable](of *lru.Cache[K, failureCount], who K, most int, now time.Time) time.Duration {
	t, ok := of.Get(who)
	if !ok || t.count < most {
		return 0
	}
	return max(t.since.Add(failureWindow).Sub(now), 0)
}

func (d *authenticator) countFailure(from netip.Prefix) {
	d.failuresTotal.Inc()
	d.mu.Lock()
	defer d.mu.Unlock()
	addFailure(d.failures, from, d.clock())
}

// addFailure counts a failure.
func addFailure[K comparable](of *lru.Cache[K, failureCount], who K, now time.Time) {
	t, ok := of.Get(who)
	if !ok || now.Sub(t.since) >= failureWindow {
		t = failureCount{since: now}
	}
	t.count++
	of.Add(who, t)
}

// clientPrefix returns where a request comes from: an IPv4 address, or the /64 of an IPv6
// one, which is what one subscriber has.
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

// subscriberPrefix is who has an address, as failures are counted.
func subscriberPrefix(addr netip.Addr) netip.Prefix {
	addr = addr.WithZone("").Unmap()
	bits := 64
	if addr.Is4() {
		bits = 32
	}
	p, _ := addr.Prefix(bits) // both fit their kind
	return p
}

// bearerToken reads the token of an Authorization header (RFC 6750 §2.1).
func bearerToken(lines []string) (string, error) {
	if len(lines) != 1 {
		return "", errs.New(errs.Unauthenticated, "send one token as \"Authorization: Bearer <token>\"")
	}
	scheme, token, ok := strings.Cut(lines[0], " ")
	token = strings.TrimSpace(token)
	if !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > models.MaxTokenLength {
		return "", errs.New(errs.Unauthenticated, "the Authorization header must be \"Bearer <token>\"")
	}
	return token, nil
}
