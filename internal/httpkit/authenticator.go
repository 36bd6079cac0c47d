// Package httpkit is the HTTP code that all APIs share: authentication with throttling of wrong
// tokens, rate limits, request bodies, preferences, streams and the access log.
package httpkit

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"math"
	"mime"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// Identity is the principal of a request and its token, "" for a login.
type Identity struct {
	models.Principal
	Token string
}

// AuthenticatorOptions configures NewAuthenticator; nil is the zero value.
type AuthenticatorOptions struct {
	// Limits are shared by the authenticators of all APIs; nil creates new ones.
	Limits *Limits
	// Clock returns the current time, default time.Now.
	Clock func() time.Time
	// Logins accepts the cookies of logins too.
	Logins bool
	// OnFailure is called for each rejected token or signature; nil ignores them.
	OnFailure func()
}

// Authenticator verifies the credentials of requests and applies the limits of tokens and of
// addresses. It is safe for concurrent use. Credentials are bearer tokens and, with Logins, the cookies of
// logins.
type Authenticator struct {
	tokens *auth.Auth
	opts   AuthenticatorOptions
	limits *Limits
}

// NewAuthenticator returns an authenticator of the given tokens.
func NewAuthenticator(tokens *auth.Auth, opts *AuthenticatorOptions) *Authenticator {
	a := &Authenticator{tokens: tokens, opts: *cmp.Or(opts, &AuthenticatorOptions{})}
	if a.opts.Clock == nil {
		a.opts.Clock = time.Now
	}
	if a.limits = a.opts.Limits; a.limits == nil {
		a.limits = NewLimits(nil)
	}
	return a
}

// Authenticate returns the identity of a request, adds the token to the access log and counts the
// request and its body towards the limits of the token. The errors are those of VerifyToken,
// errs.RateLimited with "retry_after" in seconds, and errs.InsecureRequest for a cookie in a request from a
// page of another origin. An Authorization header takes precedence over a cookie.
func (a *Authenticator) Authenticate(w http.ResponseWriter, r *http.Request) (Identity, error) {
	if a.opts.Logins && len(r.Header["Authorization"]) == 0 {
		if secret := loginSecret(r); secret != "" {
			return a.authenticateLogin(w, r, secret)
		}
	}
	token, err := BearerToken(r.Header["Authorization"])
	if err != nil {
		return Identity{}, err
	}
	p, err := a.VerifyToken(r.Context(), token, ClientPrefix(r))
	if err != nil {
		return Identity{}, err
	}
	return Identity{p, token}, a.Admit(w, r, p)
}

// authenticateLogin returns the identity of a request with the cookie of a login.
func (a *Authenticator) authenticateLogin(w http.ResponseWriter, r *http.Request, secret string) (Identity, error) {
	if err := CheckSameOrigin(r); err != nil {
		return Identity{}, err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.ContentLength != 0 {
		if sent, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || sent != "application/json" {
			return Identity{}, errs.New(errs.InsecureRequest, "the body of a request with the cookie of a login must be application/json")
		}
	}
	p, err := a.verifyLogin(r, secret)
	if err != nil {
		return Identity{}, err
	}
	return Identity{Principal: p}, a.Admit(w, r, p)
}

// verifyLogin is VerifyToken for the secret of a login. A browser may send the cookie of a login that has
// ended for a long time, so each rejected cookie counts once towards the throttle of its address.
func (a *Authenticator) verifyLogin(r *http.Request, secret string) (models.Principal, error) {
	return a.verify(sha256.Sum256([]byte("login "+secret)), ClientPrefix(r), true, func() (models.Principal, error) {
		return a.tokens.VerifyLogin(r.Context(), secret)
	})
}

// Admit counts a request of a principal that was identified, and returns errs.RateLimited if there are too many.
func (a *Authenticator) Admit(w http.ResponseWriter, r *http.Request, p models.Principal) error {
	logToken(r.Context(), p.TokenID)
	if body, ok := r.Body.(*CountedReader); ok {
		body.sender = p.TokenID
	}
	return a.limits.rate.count(w, r, p.TokenID)
}

// VerifyToken returns the principal of a token that an address sent. A token that is not accepted
// is errs.Unauthenticated or errs.AgentInactive. After too many of these the address is throttled:
// its wrong tokens are errs.Unauthenticated with "retry_after" in seconds. A token that was
// accepted before is exempt, and others are still verified, at a limited rate: a valid token is not
// locked out because of wrong ones from the same address, which many agents may share.
func (a *Authenticator) VerifyToken(ctx context.Context, token string, client netip.Prefix) (models.Principal, error) {
	return a.verify(sha256.Sum256([]byte(token)), client, false, func() (models.Principal, error) { return a.tokens.Verify(ctx, token) })
}

// verify calls look for the principal of a secret, given by its SHA-256, unless the address is throttled.
// With countOnce a secret that is rejected again is not another failure.
func (a *Authenticator) verify(hash [32]byte, client netip.Prefix, countOnce bool, look func() (models.Principal, error)) (models.Principal, error) {
	wait := time.Duration(0)
	accepted, known := a.limits.accepted.Get(hash)
	repeated := false
	if countOnce {
		_, repeated = a.limits.rejected.Get(hash)
	}
	if !accepted {
		wait = a.AddressWait(client)
	}
	if wait > 0 && (known || repeated || !a.limits.addresses.allowAttempt(client, a.opts.Clock())) {
		return models.Principal{}, throttled(wait)
	}
	p, err := look()
	switch {
	case err == nil:
		a.limits.accepted.Add(hash, true)
		a.limits.rejected.Remove(hash)
	case IsRejected(err) && wait > 0:
		err = throttled(wait)
	case IsRejected(err):
		a.limits.accepted.Remove(hash)
		if countOnce {
			a.limits.rejected.Add(hash, struct{}{})
		}
		if !repeated {
			a.countFailure(client)
		}
	}
	return p, err
}

// Revoked reports whether a token that was accepted before is accepted no longer. Streams call it
// to end with their token. It is false if the token cannot be verified at the moment.
func (a *Authenticator) Revoked(ctx context.Context, token string) bool {
	_, err := a.tokens.Verify(ctx, token)
	return IsRejected(err)
}

// AddressWait returns how long the wrong tokens and signatures of an address are throttled, 0 if
// they are not.
func (a *Authenticator) AddressWait(client netip.Prefix) time.Duration {
	return a.limits.addresses.wait(client, a.opts.Clock())
}

// SignatureWait returns how long an address must wait until a signature without a token is verified. A throttled
// address is not locked out: its signatures are verified at a limited rate, because many agents may share it.
func (a *Authenticator) SignatureWait(client netip.Prefix) time.Duration {
	wait := a.AddressWait(client)
	if wait > 0 && a.limits.addresses.allowAttempt(client, a.opts.Clock()) {
		return 0
	}
	return wait
}

// AgentWait returns how long signatures of an agent without a token are not verified, 0 if they
// are. It stops an attacker with many addresses.
func (a *Authenticator) AgentWait(agentID string) time.Duration {
	return a.limits.agents.wait(agentID, a.opts.Clock())
}

// CountBadSignature counts an invalid signature as a failure of the address and of the named agent,
// and reports whether either is throttled now. The token, if any, may be stolen: it is rejected while
// the address is throttled.
func (a *Authenticator) CountBadSignature(client netip.Prefix, agentID, token string) (tooMany bool) {
	if token != "" {
		a.limits.accepted.Add(sha256.Sum256([]byte(token)), false)
	}
	a.countFailure(client)
	a.limits.agents.add(agentID, a.opts.Clock())
	return a.AddressWait(client) > 0 || a.AgentWait(agentID) > 0
}

func (a *Authenticator) countFailure(client netip.Prefix) {
	if a.opts.OnFailure != nil {
		a.opts.OnFailure()
	}
	a.limits.addresses.add(client, a.opts.Clock())
}

func throttled(wait time.Duration) error {
	return errs.New(errs.Unauthenticated, "too many requests with invalid tokens from this address; try again later").
		With(retryAfter, int(math.Ceil(wait.Seconds())))
}

// IsThrottled reports whether a token was rejected because its address is throttled.
func IsThrottled(err error) bool {
	e := errs.From(err)
	return e.Code == errs.Unauthenticated && e.Meta[retryAfter] != nil
}

// AsRateLimited returns the error of a throttled token as errs.RateLimited, for APIs whose status
// codes follow from the error code, and every other error unchanged.
func AsRateLimited(err error) error {
	if !IsThrottled(err) {
		return err
	}
	e := errs.From(err)
	return errs.New(errs.RateLimited, "%s", e.Detail).With(retryAfter, e.Meta[retryAfter])
}

// IsRejected reports whether a token was verified and not accepted, as opposed to a failed look-up.
func IsRejected(err error) bool {
	return errs.Is(err, errs.Unauthenticated) || errs.Is(err, errs.AgentInactive)
}

// BearerToken returns the token of an Authorization header (RFC 6750 §2.1).
func BearerToken(values []string) (string, error) {
	if len(values) == 0 {
		return "", errs.New(errs.Unauthenticated, "send a token as \"Authorization: Bearer <token>\"")
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	token = strings.TrimSpace(token)
	if len(values) > 1 || !ok || !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > input.MaxTokenLength {
		return "", errs.New(errs.Unauthenticated, "the Authorization header must be \"Bearer <token>\"")
	}
	return token, nil
}

// TokenError returns the parameters of WWW-Authenticate that say why a bearer token is rejected with a
// status, "" if the request has none (RFC 6750 §3).
func TokenError(r *http.Request, status int, reason string) string {
	if scheme, _, _ := strings.Cut(r.Header.Get("Authorization"), " "); !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	code := map[int]string{http.StatusUnauthorized: "invalid_token", http.StatusForbidden: "insufficient_scope"}[status]
	return fmt.Sprintf(", error=%q, error_description=%+q", code, reason)
}

// ClientPrefix returns the address of a request as AddressPrefix does, the zero value if it is
// unknown.
func ClientPrefix(r *http.Request) netip.Prefix {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	return AddressPrefix(client.Addr())
}

// AddressPrefix returns the prefix by which failures of an address are counted: an IPv4 address, or
// the /64 of an IPv6 address, which one subscriber usually has.
func AddressPrefix(addr netip.Addr) netip.Prefix {
	addr = addr.WithZone("").Unmap()
	p, _ := addr.Prefix(min(addr.BitLen(), 64)) // the number of bits is valid for the address
	return p
}
