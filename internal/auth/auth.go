// Package auth knows who makes a request: bearer tokens, of which only the
// SHA-256 is kept, their scopes, and the principal in a request's context.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// verifyFor is how long a verified token is not looked up again. It bounds how
// long a revocation on another replica may go unnoticed here, which must stay
// below one second.
const verifyFor = 750 * time.Millisecond

// cacheSize bounds how many verified tokens are remembered.
const cacheSize = 10_000

// BootstrapTokenID is the id of the admin token that the first start makes.
const BootstrapTokenID = "bootstrap-admin"

// Auth issues and verifies tokens. It is safe for concurrent use.
type Auth struct {
	store    *store.Store
	clock    func() time.Time
	verified *lru.Cache[[32]byte, verification]
	// revocations counts changes to tokens on this replica. A look-up that began
	// before one must not be remembered after it.
	revocations atomic.Int64
}

type verification struct {
	principal models.Principal
	until     time.Time  // of the monotonic clock, which nobody can set back
	expires   *time.Time // of the token, by the store's clock
}

// Options configures New; nil is the zero value.
type Options struct {
	// Clock tells how long a verification has been believed, default time.Now,
	// whose monotonic part is what counts. Expiry goes by the store's clock.
	Clock func() time.Time
}

// New returns an Auth over the store.
func New(s *store.Store, opts *Options) *Auth {
	cache, err := lru.New[[32]byte, verification](cacheSize)
	if err != nil {
		panic(err) // only for a size that is not positive
	}
	a := &Auth{store: s, verified: cache, clock: time.Now}
	if opts != nil && opts.Clock != nil {
		a.clock = opts.Clock
	}
	return a
}

// Verify returns who holds the secret. An unknown, expired or revoked one is
// errs.Unauthenticated without saying which; one bound to a deactivated agent is
// errs.AgentInactive. A revocation counts at once on this replica and within a
// second on the others.
func (a *Auth) Verify(ctx context.Context, secret string) (models.Principal, error) {
	hash := sha256.Sum256([]byte(secret))
	begun := a.clock()
	if v, ok := a.verified.Get(hash); ok && begun.Before(v.until) && (v.expires == nil || a.store.Now().Before(*v.expires)) {
		return v.principal, nil
	}
	now := a.store.Now()
	seen := a.revocations.Load()
	t, agentActive, err := a.store.TokenByHash(ctx, hash)
	if err != nil && !errs.Is(err, errs.NotFound) {
		return models.Principal{}, err
	}
	if err != nil || !t.Active(now) {
		return models.Principal{}, errs.New(errs.Unauthenticated, "the token is unknown, expired or revoked")
	}
	if !agentActive {
		return models.Principal{}, errs.New(errs.AgentInactive, "the agent %q that the token belongs to is inactive", *t.AgentID)
	}
	p := models.Principal{TokenID: t.ID, Name: t.Name, Scopes: t.Scopes, AgentID: t.AgentID}
	if a.revocations.Load() == seen {
		a.verified.Add(hash, verification{p, begun.Add(verifyFor), t.ExpiresAt})
		if a.revocations.Load() != seen { // changed between the check and the insert
			a.verified.Remove(hash)
		}
	}
	return p, nil
}

// Lapsed returns which of the secrets, given by their SHA-256, Verify would refuse. It is for
// who holds something open in their names, and looks at the store each time.
func (a *Auth) Lapsed(ctx context.Context, hashes [][32]byte) (lapsed [][32]byte, err error) {
	accepted, err := a.store.AcceptedTokens(ctx, hashes)
	if err != nil {
		return nil, err
	}
	for _, hash := range hashes {
		if !accepted[hash] {
			lapsed = append(lapsed, hash)
		}
	}
	return lapsed, nil
}

// forget makes the next use of every token look at the store again. The change
// has been committed.
func (a *Auth) forget() {
	a.revocations.Add(1)
	a.verified.Purge()
}

// Require returns errs.MissingScope, naming the scope, unless the principal has it.
func Require(p models.Principal, scope models.Scope) error {
	if p.Has(scope) {
		return nil
	}
	return errs.New(errs.MissingScope, "the token %q lacks the scope %q", p.Name, scope).With("scope", scope)
}

type contextKey struct{}

// With returns a context that carries the principal of a request.
func With(ctx context.Context, p models.Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the principal of a request; ok is false for a request that needs
// no token.
func From(ctx context.Context) (p models.Principal, ok bool) {
	p, ok = ctx.Value(contextKey{}).(models.Principal)
	return p, ok
}

// NewSecret returns 128 random bits as 32 hexadecimal characters.
func NewSecret() string {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // never fails; it ends the program where there is no randomness
	return hex.EncodeToString(b)
}
