// Package oidc verifies the access tokens of an OpenID Connect issuer.
package oidc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"

	"comet/internal/errs"
	"comet/models"
)

// Options configures New.
type Options struct {
	// URL is the claim iss of the tokens and the address of the issuer's metadata.
	URL string
	// Audience must be in the claim aud of the tokens.
	Audience string
	// ScopeClaim names the claim with the scopes, a list or words separated by spaces. Scopes are those that
	// it may grant: their names, or "scope=value" for one that a value of the claim grants.
	ScopeClaim string
	Scopes     []string
	// AgentClaim names the claim with the agent that a token is bound to; "" binds tokens to no agent.
	AgentClaim string
	Clock      func() time.Time
	Logger     *slog.Logger
}

const (
	// issuerLeeway is how far the issuer's clock may be ahead.
	issuerLeeway = time.Minute
	// maxKeyAge is the age at which keys are fetched again. An unknown key also causes a fetch. Fetches are
	// at least fetchInterval apart, so that tokens with invented keys do not cause one each.
	maxKeyAge     = 5 * time.Minute
	fetchInterval = 10 * time.Second
	fetchTimeout  = 4 * time.Second // of each of the two documents
	maxDocument   = 256 << 10       // bytes of a document
)

// Fingerprint identifies the settings that decide which JWTs are accepted and which rights they grant.
func (o Options) Fingerprint() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", o.URL, o.Audience, o.ScopeClaim, o.Scopes, o.AgentClaim))
	return fmt.Sprintf("%x", sum[:16])
}

// Verifier verifies JWTs. It fetches the issuer's keys when it first needs them.
type Verifier struct {
	opts Options

	mu             sync.Mutex
	keys           []jose.JSONWebKey
	fetched, tried time.Time
	fetching       chan struct{} // closed when the fetch in progress ends, nil without one
	failure        error         // of the last fetch
}

// New returns a verifier of the JWTs of an issuer.
func New(opts Options) *Verifier { return &Verifier{opts: opts} }

// Token returns a JWT as a token that is not stored. It returns errs.NotFound for a text that is not a JWT with a
// permitted algorithm, errs.Unauthenticated with the reason for a JWT that is not valid at now, and
// errs.Unavailable if its key is not known and cannot be fetched.
func (v *Verifier) Token(ctx context.Context, secret string, now time.Time) (t models.Token, err error) {
	parsed, err := jwt.ParseSigned(secret, []jose.SignatureAlgorithm{jose.RS256, jose.PS256, jose.ES256, jose.EdDSA})
	if err != nil {
		return t, errs.Wrap(errs.NotFound, err, "there is no such token")
	}
	var c jwt.Claims
	claims := map[string]any{}
	err = parsed.UnsafeClaimsWithoutVerification(&c, &claims)
	agentID, _ := claims[v.opts.AgentClaim].(string)
	expires, begins := c.Expiry.Time(), max(c.NotBefore.Time().Unix(), c.IssuedAt.Time().Unix())
	reason := ""
	switch {
	case err != nil:
		reason = "the claims of the token are malformed"
	case !slices.Contains([]any{nil, "JWT", "at+jwt", "application/at+jwt"}, parsed.Headers[0].ExtraHeaders[jose.HeaderType]):
		reason = "the token is not an access token: its type must be at+jwt or JWT"
	case c.Issuer != v.opts.URL:
		reason = "the token is from another issuer"
	case !c.Audience.Contains(v.opts.Audience):
		reason = "the token is for an audience other than " + v.opts.Audience
	case !now.Before(expires):
		reason = "the token has expired"
	case now.Add(issuerLeeway).Unix() < begins:
		reason = "the token is not valid yet"
	case c.Subject == "" || len(c.Subject) > 255 || strings.ContainsFunc(c.Subject, func(r rune) bool { return !unicode.IsPrint(r) }):
		reason = "the subject of the token must have 1 to 255 printable characters"
	case claims["cnf"] != nil:
		reason = "the token is bound to a key of its client, which comet cannot verify"
	case v.opts.AgentClaim != "" && agentID == "":
		reason = fmt.Sprintf("the token has no claim %q that names an agent", v.opts.AgentClaim)
	}
	if reason != "" {
		return t, errs.New(errs.Unauthenticated, "%s", reason)
	}
	key, err := v.key(ctx, parsed.Headers[0])
	if err == nil && parsed.Claims(key) != nil {
		err = errs.New(errs.Unauthenticated, "the signature of the token is invalid")
	}
	if v.opts.AgentClaim != "" {
		t.AgentID = &agentID
	}
	id := sha256.Sum256(fmt.Appendf(nil, "%q %q %q", c.Issuer, c.Subject, agentID))
	t.ID, t.Name, t.CreatedBy = fmt.Sprintf("oidc:%x", id[:16]), "oidc:"+c.Subject, v.opts.URL
	t.Scopes, t.CreatedAt, t.ExpiresAt = v.scopesOf(claims[v.opts.ScopeClaim]), c.IssuedAt.Time().UTC(), new(expires.UTC())
	return t, err
}

// scopesOf returns the scopes that a claim grants.
func (v *Verifier) scopesOf(claim any) []models.Scope {
	values, _ := claim.([]any)
	text, _ := claim.(string)
	for word := range strings.FieldsSeq(text) {
		values = append(values, word)
	}
	scopes := []models.Scope{}
	for _, entry := range v.opts.Scopes {
		scope, value, _ := strings.Cut(entry, "=")
		if slices.Contains(values, any(cmp.Or(value, scope))) {
			scopes = append(scopes, models.Scope(scope))
		}
	}
	slices.Sort(scopes)
	return slices.Compact(scopes)
}

// key returns the issuer's key that a header names. It waits for a fetch only if the key is not known.
func (v *Verifier) key(ctx context.Context, h jose.Header) (any, error) {
	for {
		key, fetching, failure := v.lookUp(h)
		switch {
		case key != nil:
			return key, nil
		case fetching == nil && failure != nil:
			return nil, errs.Wrap(errs.Unavailable, failure, "the keys of the issuer cannot be fetched; try again later")
		case fetching == nil:
			return nil, errs.New(errs.Unauthenticated, "the issuer has no key for the token")
		}
		select {
		case <-fetching:
		case <-ctx.Done():
			return nil, errs.Wrap(errs.Unavailable, ctx.Err(), "the keys of the issuer have not arrived in time")
		}
	}
}

// lookUp returns a key, nil if it is not known, a channel that is closed when the fetch in progress
// ends, which lookUp may have started, and the failure of the last fetch.
func (v *Verifier) lookUp(h jose.Header) (key any, fetching <-chan struct{}, failure error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, k := range v.keys {
		if k.KeyID == h.KeyID && (k.Algorithm == "" || k.Algorithm == h.Algorithm) {
			key = k.Key
		}
	}
	now := v.opts.Clock()
	if (key == nil || now.Sub(v.fetched) > maxKeyAge) && v.fetching == nil && now.Sub(v.tried) >= fetchInterval {
		v.tried, v.fetching = now, make(chan struct{})
		go v.refresh(now)
	}
	if v.fetching != nil && v.failure == nil && now.Sub(v.fetched) > 2*maxKeyAge {
		key = nil // the issuer may have removed it while no token arrived
	}
	return key, v.fetching, v.failure
}

// refresh fetches the keys. If it fails, the known keys stay valid.
func (v *Verifier) refresh(now time.Time) {
	keys, err := v.fetch()
	if err != nil {
		v.opts.Logger.Warn("the keys of the issuer cannot be fetched", "issuer", v.opts.URL, "error", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failure = err; err == nil {
		v.keys, v.fetched = keys, now
	}
	close(v.fetching)
	v.fetching = nil
}

// fetch returns the public keys of the issuer that verify signatures.
func (v *Verifier) fetch() (keys []jose.JSONWebKey, err error) {
	var doc struct {
		Issuer string            `json:"issuer"`
		URL    string            `json:"jwks_uri"`
		Keys   []json.RawMessage `json:"keys"`
	}
	if err := v.get(strings.TrimSuffix(v.opts.URL, "/")+"/.well-known/openid-configuration", &doc); err != nil {
		return nil, err
	}
	if doc.Issuer != v.opts.URL || strings.HasPrefix(v.opts.URL, "https:") && !strings.HasPrefix(doc.URL, "https:") {
		return nil, fmt.Errorf("the metadata names the issuer %q and the keys %q; the issuer must be the same and the keys must be at an https URL", doc.Issuer, doc.URL)
	}
	err = v.get(doc.URL, &doc)
	for _, raw := range doc.Keys {
		var k jose.JSONWebKey // unmarshalling fails for a key of an unknown kind
		if k.UnmarshalJSON(raw) == nil && k.IsPublic() && (k.Use == "" || k.Use == "sig") {
			keys = append(keys, k)
		}
	}
	return keys, err
}

// get decodes a JSON document of the issuer.
func (v *Verifier) get(at string, into any) error {
	client := http.Client{Timeout: fetchTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Get(at) //nolint:noctx // the client has a time-out
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s returned %s", at, resp.Status)
	}
	return json.NewDecoder(http.MaxBytesReader(nil, resp.Body, maxDocument)).Decode(into)
}
