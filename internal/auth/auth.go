// Package auth authenticates requests: it issues and verifies bearer tokens, of which only the
// SHA-256 is stored, checks scopes, and carries the principal in a request's context.
package auth

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/models"
	"comet/store"
	"comet/store/logins"
)

// verifyFor is how long a verified token is cached. It limits how long a revocation on another
// replica goes unnoticed, which must stay below one second.
const verifyFor = 750 * time.Millisecond

// cacheSize limits how many verified tokens are cached.
const cacheSize = 10_000

// BootstrapTokenID is the id of the admin token that the first start creates.
const BootstrapTokenID = "bootstrap-admin"

// Auth issues and verifies tokens. It is safe for concurrent use. As a background.Service it stores when
// tokens were last used.
type Auth struct {
	*background.Loop

	store    *store.Store
	clock    func() time.Time
	verified *lru.Cache[[32]byte, verification]
	mu       sync.Mutex
	used     map[string]bool // the tokens used since their last use was stored
	seen     map[string]bool // the logins, likewise
	// revocations counts changes of tokens here. A look-up that began before one is not cached.
	revocations atomic.Int64

	standing *lru.Cache[string, verification]   // by the id of the token
	logins   *lru.Cache[[32]byte, verification] // by the hash of the secret
	rejected *lru.Cache[[32]byte, verification] // rejected logins, by hash; separate, because anyone can send secrets

	jwts        func(ctx context.Context, secret string, now time.Time) (models.Token, error)
	jwtSettings string
	issued      *lru.Cache[[32]byte, models.Token] // accepted JWTs, for Lapsed
}

type verification struct {
	principal models.Principal
	until     time.Time  // on the monotonic clock, which cannot be set back
	expires   *time.Time // by the store's clock
	err       error      // why a login is rejected
}

// validAt reports whether a cached verification may be used.
func (v verification) validAt(now, stored time.Time) bool {
	return now.Before(v.until) && (v.expires == nil || stored.Before(*v.expires))
}

// Options configures New; nil means defaults.
type Options struct {
	// Clock ages cached verifications, default time.Now. Token expiry uses the store's clock.
	Clock func() time.Time
	// Logger receives failures of the background work, default none.
	Logger *slog.Logger
	// JWTs returns a JWT of an issuer as a token that is not stored, or errs.NotFound for a text that is
	// not a JWT; default none.
	JWTs func(ctx context.Context, secret string, now time.Time) (models.Token, error)
	// JWTSettings identifies the settings for JWTs. Logins with JWTs end when these settings change.
	JWTSettings string
}

// touchInterval is how often the last use of tokens is stored.
const touchInterval = time.Minute

// New returns an Auth on the store.
func New(s *store.Store, opts *Options) *Auth {
	cache, _ := lru.New[[32]byte, verification](cacheSize) // New fails only for a size below 1
	issued, _ := lru.New[[32]byte, models.Token](cacheSize)
	standing, _ := lru.New[string, verification](cacheSize)
	byCookie, _ := lru.New[[32]byte, verification](cacheSize)
	rejected, _ := lru.New[[32]byte, verification](cacheSize)
	o := cmp.Or(opts, &Options{})
	a := &Auth{store: s, verified: cache, issued: issued, standing: standing, logins: byCookie, rejected: rejected, jwts: o.JWTs, jwtSettings: o.JWTSettings, clock: o.Clock, used: map[string]bool{}, seen: map[string]bool{}}
	if a.clock == nil {
		a.clock = time.Now
	}
	touch := background.NewPollLoop(background.PollOptions{Task: "storing the last use of tokens", Logger: cmp.Or(o.Logger, slog.New(slog.DiscardHandler))}, a.touch)
	a.Loop = background.NewLoop(touch.Run)
	return a
}

// Stop implements background.Service: it stores the last use of tokens once more.
func (a *Auth) Stop(ctx context.Context) error {
	err := a.Loop.Stop(ctx)
	_, touchErr := a.touch(ctx)
	return errors.Join(err, touchErr)
}

// touch stores the last use of the tokens and logins used since the last time.
func (a *Auth) touch(ctx context.Context) (time.Duration, error) {
	a.mu.Lock()
	used, seen := a.used, a.seen
	a.used, a.seen = map[string]bool{}, map[string]bool{}
	a.mu.Unlock()
	if len(used) == 0 {
		return touchInterval, nil
	}
	err := a.store.Write(ctx, func(tx *store.Tx) error {
		err := tx.Tokens().Touch(slices.Sorted(maps.Keys(used)))
		if err == nil && len(seen) > 0 {
			err = logins.Touch(tx, slices.Sorted(maps.Keys(seen)))
		}
		return err
	})
	if err != nil {
		a.mu.Lock()
		maps.Copy(used, a.used)
		maps.Copy(seen, a.seen)
		a.used, a.seen = used, seen
		a.mu.Unlock()
	}
	return touchInterval, err
}

// Verify returns the principal of a secret. An unknown, expired or revoked secret is
// errs.Unauthenticated without saying which, a JWT that is not valid with the reason; one of a
// deactivated agent is errs.AgentInactive. A revocation takes effect at once on this replica and within a
// second on others. It returns errs.Unavailable if the keys of the issuer of a JWT cannot be fetched.
func (a *Auth) Verify(ctx context.Context, secret string) (models.Principal, error) {
	hash := sha256.Sum256([]byte(secret))
	begun := a.clock()
	if v, ok := a.verified.Get(hash); ok && v.validAt(begun, a.store.Now()) {
		return v.principal, nil
	}
	now := a.store.Now()
	seen := a.revocations.Load()
	t, agentActive, err := a.store.Tokens(ctx).ByHash(hash)
	var issued *models.Token
	if a.jwts != nil && errs.Is(err, errs.NotFound) {
		if t, err = a.jwts(ctx, secret, now); err == nil {
			issued = new(t)
			agentActive, err = a.checkAgent(ctx, t)
		}
	}
	p, err := accept(t, issued, agentActive, err, now)
	if err != nil {
		return p, err
	}
	a.mu.Lock()
	a.used[t.ID] = true
	a.mu.Unlock()
	if issued != nil {
		a.issued.Add(hash, t)
	}
	if a.revocations.Load() == seen {
		a.verified.Add(hash, verification{principal: p, until: begun.Add(verifyFor), expires: t.ExpiresAt})
		if a.revocations.Load() != seen { // changed between the check and the insert
			a.verified.Remove(hash)
		}
	}
	return p, nil
}

// accept returns the principal of a token that was looked up with a result.
func accept(t models.Token, issued *models.Token, agentActive bool, err error, now time.Time) (models.Principal, error) {
	switch {
	case err != nil && !errs.Is(err, errs.NotFound):
		return models.Principal{}, err
	case err != nil || !t.Active(now):
		return models.Principal{}, errs.New(errs.Unauthenticated, "the token is unknown, expired or revoked")
	case !agentActive:
		return models.Principal{}, errs.New(errs.AgentInactive, "the agent %q that the token belongs to is inactive", *t.AgentID)
	}
	return models.Principal{TokenID: t.ID, Name: t.Name, Scopes: t.Scopes, AgentID: t.AgentID, Issued: issued}, nil
}

// Standing returns a principal as it is now, for work that continues without its client. It returns errs.Unauthenticated
// for a token that Verify would reject. Like Verify, it may return a cached principal for a moment. JWTs are not stored, so
// without by.Issued the token of a JWT is unknown.
func (a *Auth) Standing(ctx context.Context, by models.Principal) (models.Principal, error) {
	if by.Issued != nil {
		active, err := a.checkAgent(ctx, *by.Issued)
		if err == nil && !(active && by.Issued.Active(a.store.Now())) {
			err = errs.New(errs.Unauthenticated, "the token %q is expired, or its agent is inactive", by.Name)
		}
		return by, err
	}
	if p, ok, err := a.standingSpeaker(ctx, by); ok {
		return p, err
	}
	tokenID := by.TokenID
	begun, seen := a.clock(), a.revocations.Load()
	if v, ok := a.standing.Get(tokenID); ok && v.validAt(begun, a.store.Now()) {
		return v.principal, nil
	}
	t, err := a.store.Tokens(ctx).Get(tokenID)
	if errs.Is(err, errs.NotFound) {
		return models.Principal{}, errs.New(errs.Unauthenticated, "the token %q is not stored by comet", tokenID)
	}
	var accepted map[[32]byte]bool
	if err == nil {
		accepted, err = a.store.Tokens(ctx).Accepted([][32]byte{t.Hash})
	}
	if err != nil {
		return models.Principal{}, err
	}
	if !accepted[t.Hash] {
		return models.Principal{}, errs.New(errs.Unauthenticated, "the token %q is expired or revoked, or its agent is inactive", t.Name)
	}
	p := models.Principal{TokenID: t.ID, Name: t.Name, Scopes: t.Scopes, AgentID: t.AgentID}
	if a.standing.Add(tokenID, verification{principal: p, until: begun.Add(verifyFor), expires: t.ExpiresAt}); a.revocations.Load() != seen {
		a.standing.Remove(tokenID)
	}
	return p, nil
}

// checkAgent reports whether the agent that a JWT names is active. It returns errs.Unauthenticated if there
// is none with that id, or if the scope admin cannot be bound to it.
func (a *Auth) checkAgent(ctx context.Context, t models.Token) (active bool, err error) {
	if t.AgentID == nil {
		return true, nil
	}
	agent, err := a.store.Agents(ctx).Get(*t.AgentID)
	switch {
	case errs.Is(err, errs.NotFound):
		err = errs.New(errs.Unauthenticated, "the token names the agent %q, which does not exist", *t.AgentID)
	case err == nil && agent.Level > models.LevelOrchestrator && slices.Contains(t.Scopes, models.ScopeAdmin):
		err = errs.New(errs.Unauthenticated, "the token has the scope %q, but its agent %q has level %d", models.ScopeAdmin, agent.ID, agent.Level)
	}
	return agent.IsActive, err
}

// Lapsed returns those of the secrets, given by their SHA-256, that Verify would refuse. It reads
// the store each time; owners of open streams and sessions use it. From then on Verify also refuses
// these secrets, so that a token whose session was ended is not accepted.
func (a *Auth) Lapsed(ctx context.Context, hashes [][32]byte) (lapsed [][32]byte, err error) {
	accepted, err := a.store.Tokens(ctx).Accepted(hashes)
	if err != nil {
		return nil, err
	}
	for _, hash := range hashes {
		if t, ok := a.issued.Get(hash); ok && t.Active(a.store.Now()) {
			if accepted[hash], err = a.checkAgent(ctx, t); err != nil {
				return nil, err
			}
		}
		if !accepted[hash] {
			lapsed = append(lapsed, hash)
		}
	}
	if len(lapsed) > 0 {
		a.revocations.Add(1) // a look-up that has begun is not cached
	}
	for _, hash := range lapsed {
		a.verified.Remove(hash)
	}
	return lapsed, nil
}

// forget clears the cache after a committed change.
func (a *Auth) forget() {
	a.revocations.Add(1)
	a.verified.Purge()
	a.standing.Purge()
	a.logins.Purge()
}

// Require returns errs.MissingScope, naming the scopes, unless the principal has the scope or one of the others.
func Require(p models.Principal, scope models.Scope, others ...models.Scope) error {
	missing := strconv.Quote(string(scope))
	if p.Has(scope) {
		return nil
	}
	for _, other := range others {
		if p.Has(other) {
			return nil
		}
		missing += " or " + strconv.Quote(string(other))
	}
	return errs.New(errs.MissingScope, "the token %q lacks the scope %s", p.Name, missing).With("scope", scope)
}

type contextKey struct{}

// With returns a context that carries the principal of a request.
func With(ctx context.Context, p models.Principal) context.Context {
	return context.WithValue(ctx, contextKey{}, p)
}

// From returns the principal of a request; ok is false for a request without a token.
func From(ctx context.Context) (p models.Principal, ok bool) {
	p, ok = ctx.Value(contextKey{}).(models.Principal)
	return p, ok
}

// NewSecret returns 128 random bits as 32 hexadecimal characters.
func NewSecret() string { return randomHex(16) }

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails; without randomness it ends the program
	return hex.EncodeToString(b)
}
