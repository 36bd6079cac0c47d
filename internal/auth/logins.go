package auth

import (
	"context"
	"crypto/sha256"
	"strings"
	"time"
	"unicode"

	"github.com/google/uuid"
	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
	"comet/store/logins"
)

const (
	// loginFor is how long a login is valid at most; it ends after logins.Idle without use.
	loginFor = 7 * 24 * time.Hour
	// codeFor is how long the code of a login is valid.
	codeFor = time.Minute
	// maxUserAgent is how many characters of a browser's description are stored.
	maxUserAgent = 200
)

// LoginCode returns a code that starts one login with the authority of a token, and when it expires, in a
// minute. The secret of the token is verified as Verify does. A token has at most 100 codes; the oldest end
// first.
func (a *Auth) LoginCode(ctx context.Context, secret string) (code string, expires time.Time, err error) {
	p, err := a.Verify(ctx, secret)
	if err != nil {
		return "", time.Time{}, err
	}
	code, expires = NewSecret(), a.store.Now().Add(codeFor)
	c := logins.LoginCode{
		Hash: sha256.Sum256([]byte(code)), TokenID: p.TokenID, ExpiresAt: expires,
		Credentials: a.credentials(secret, p),
	}
	return code, expires, a.store.Write(ctx, func(tx *store.Tx) error { return logins.InsertCode(tx, c) })
}

// LoginDraft is a request for a login. Either Token, the secret of a token, or Code is set.
type LoginDraft struct {
	Token, Code string
	// UserAgent is what the browser says about itself.
	UserAgent string
	// Former is the secret of the login that the new one replaces, "" for none.
	Former string
}

// Login starts a login of a browser and returns its secret, which only VerifyLogin accepts, and its
// principal. The login ends 7 days later, 12 hours after its last use, and with its token, also when that
// is rotated. A token has at most 100 logins; the oldest end first. Login returns errs.Unauthenticated and
// errs.AgentInactive as Verify does, and errs.Unauthenticated for a code that was used or has expired.
func (a *Auth) Login(ctx context.Context, d LoginDraft) (secret string, p models.Principal, err error) {
	var from logins.Credentials
	if d.Code == "" {
		if p, err = a.Verify(ctx, d.Token); err != nil {
			return "", p, err
		}
		from = a.credentials(d.Token, p)
	}
	secret = NewSecret()
	err = a.store.Write(ctx, func(tx *store.Tx) error {
		if d.Code != "" {
			code, err := logins.TakeCode(tx, sha256.Sum256([]byte(d.Code)))
			if errs.Is(err, errs.NotFound) {
				return errs.New(errs.Unauthenticated, "the code of the login is unknown, used or older than a minute; get another one with: comet dashboard")
			}
			if err != nil {
				return err
			}
			from = code.Credentials
		}
		if d.Former != "" {
			if err := logins.DeleteByHash(tx, sha256.Sum256([]byte(d.Former))); err != nil {
				return err
			}
		}
		return insertLogin(tx, from, secret, d.UserAgent)
	})
	a.forgetLogins()
	if err == nil {
		p, err = a.VerifyLogin(ctx, secret) // the token of a code may have ended
	}
	return secret, p, err
}

// credentials returns the data to store for a token with a secret and a principal.
func (a *Auth) credentials(secret string, p models.Principal) logins.Credentials {
	c := logins.Credentials{TokenHash: sha256.Sum256([]byte(secret))}
	if p.Issued != nil {
		c.Issued = &logins.JWT{Token: *p.Issued, Settings: a.jwtSettings}
	}
	return c
}

func insertLogin(tx *store.Tx, from logins.Credentials, secret, userAgent string) (err error) {
	var t models.Token
	if from.Issued != nil {
		t = from.Issued.Token
	} else if t, _, err = tx.Tokens().ByHash(from.TokenHash); err != nil {
		_, err = accept(t, nil, true, err, tx.Now())
		return err
	}
	id, err := uuid.NewV7()
	if err != nil {
		return err
	}
	l := logins.View{
		ID: id.String(), TokenID: t.ID, TokenName: t.Name, UserAgent: describe(userAgent),
		CreatedAt: tx.Now(), SeenAt: tx.Now(), ExpiresAt: tx.Now().Add(loginFor),
	}
	if t.ExpiresAt != nil && t.ExpiresAt.Before(l.ExpiresAt) {
		l.ExpiresAt = *t.ExpiresAt
	}
	return logins.Insert(tx, logins.Login{View: l, IDHash: sha256.Sum256([]byte(secret)), Credentials: from})
}

// describe returns what is stored of a browser's description.
func describe(userAgent string) string {
	plain := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(userAgent, ""))
	return input.ClipTo(plain, maxUserAgent-1) // and an ellipsis
}

// VerifyLogin returns the principal of a login, given by its secret, as Verify does for a token. A logout
// and a revocation of the token take effect at once on this replica and within a second on others.
func (a *Auth) VerifyLogin(ctx context.Context, secret string) (models.Principal, error) {
	hash, begun, seen := sha256.Sum256([]byte(secret)), a.clock(), a.revocations.Load()
	for _, cache := range []*lru.Cache[[32]byte, verification]{a.logins, a.rejected} {
		if v, ok := cache.Get(hash); ok && v.validAt(begun, a.store.Now()) {
			return v.principal, v.err
		}
	}
	now := a.store.Now()
	l, err := logins.ByHash(a.store.Reads(ctx), hash)
	var p models.Principal
	switch {
	case errs.Is(err, errs.NotFound), err == nil && l.Expired(now):
		err = errs.New(errs.Unauthenticated, "the login has ended; log in again")
	case err == nil:
		p, err = a.loginPrincipal(ctx, l, now)
	}
	v := verification{principal: p, until: begun.Add(verifyFor), err: err}
	switch {
	case err == nil:
		v.expires = &l.ExpiresAt
		a.mu.Lock()
		a.used[p.TokenID], a.seen[l.ID] = true, true
		a.mu.Unlock()
	case errs.Is(err, errs.Unauthenticated), errs.Is(err, errs.AgentInactive):
		a.logins.Remove(hash)
		a.rejected.Add(hash, v)
		return p, err
	default:
		return p, err
	}
	if a.logins.Add(hash, v); a.revocations.Load() != seen {
		a.logins.Remove(hash)
	}
	return p, err
}

// loginPrincipal returns the principal of a login whose token is valid. A JWT is not verified again, so its login ends
// when the settings change from which its rights were derived.
func (a *Auth) loginPrincipal(ctx context.Context, l logins.Login, now time.Time) (p models.Principal, err error) {
	var t models.Token
	var active bool
	var issued *models.Token
	switch {
	case l.Issued == nil:
		t, active, err = a.store.Tokens(ctx).ByHash(l.TokenHash)
	case a.jwts == nil || l.Issued.Settings != a.jwtSettings:
		return p, errs.New(errs.Unauthenticated, "the settings of the issuer have changed since the login; log in again")
	default:
		t, issued = l.Issued.Token, &l.Issued.Token
		active, err = a.checkAgent(ctx, t)
	}
	if p, err = accept(t, issued, active, err, now); err == nil {
		p.LoginID, p.LoginEnds = l.ID, l.ExpiresAt
	}
	return p, err
}

// Logout ends a login, given by its secret: at once on this replica, within a second on others.
func (a *Auth) Logout(ctx context.Context, secret string) error {
	err := a.store.Write(ctx, func(tx *store.Tx) error { return logins.DeleteByHash(tx, sha256.Sum256([]byte(secret))) })
	a.forgetLogins()
	return err
}

// EndLogin ends a login like Logout. It returns errs.NotFound if there is no login with that id whose token
// is that of the principal; an administrator may end every login.
func (a *Auth) EndLogin(ctx context.Context, by models.Principal, id string) error {
	err := a.store.Write(ctx, func(tx *store.Tx) error {
		ok, err := logins.Delete(tx, ownLogins(by), id)
		if err == nil && !ok {
			err = errs.New(errs.NotFound, "there is no login %q", id)
		}
		return err
	})
	a.forgetLogins()
	return err
}

// Logins returns up to limit logins in the order of creation, after the id after ("" for none): those of the
// principal's token, all for an administrator.
func (a *Auth) Logins(ctx context.Context, by models.Principal, after string, limit int) ([]logins.View, error) {
	return logins.List(a.store.Reads(ctx), ownLogins(by), after, a.store.Now(), limit)
}

// ownLogins returns the token whose logins a principal may see, "" for all.
func ownLogins(by models.Principal) string {
	if by.Administers() {
		return ""
	}
	return by.TokenID
}

func (a *Auth) forgetLogins() {
	a.revocations.Add(1) // a look-up that has begun is not cached
	a.logins.Purge()
}
