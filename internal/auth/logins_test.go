package auth_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/registry"
	"comet/models"
	"comet/store"
	"comet/store/logins"
	"comet/store/storetest"
)

var reading = auth.TokenDraft{Scopes: []models.Scope{models.ScopeAgentsRead}}

// login logs in with a secret.
func login(t *testing.T, a *auth.Auth, secret string) string {
	t.Helper()
	cookie, _, err := a.Login(t.Context(), auth.LoginDraft{Token: secret, UserAgent: "test"})
	require.NoError(t, err)
	return cookie
}

func requireEnded(t *testing.T, a *auth.Auth, cookie string) {
	t.Helper()
	_, err := a.VerifyLogin(t.Context(), cookie)
	require.True(t, errs.Is(err, errs.Unauthenticated), err)
}

func TestLogin(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, &auth.Options{Clock: db.Now}) // a cached verification does not age
		token := issue(t, a, reading)
		other := issue(t, a, reading)

		_, _, err := a.Login(t.Context(), auth.LoginDraft{Token: "wrong"})
		require.True(t, errs.Is(err, errs.Unauthenticated))
		browser := "Mozilla\x00/5.0\r\n" + strings.Repeat("é", 300) + "\xff"
		cookie, p, err := a.Login(t.Context(), auth.LoginDraft{Token: token.Secret, UserAgent: browser})
		require.NoError(t, err)
		require.Equal(t, models.Principal{
			TokenID: token.Token.ID, Name: "test", Scopes: reading.Scopes, LoginID: p.LoginID, LoginEnds: db.Now().Add(7 * 24 * time.Hour),
		}, p)
		again, err := a.VerifyLogin(t.Context(), cookie)
		require.NoError(t, err)
		require.Equal(t, p, again)
		_, err = a.Verify(t.Context(), cookie)
		require.True(t, errs.Is(err, errs.Unauthenticated), "a login is not a token")
		requireEnded(t, a, token.Secret) // and a token is not a login

		second := login(t, a, other.Secret)
		own, err := a.Logins(t.Context(), p, "", 10)
		require.NoError(t, err)
		require.Equal(t, []logins.View{{
			ID: p.LoginID, TokenID: token.Token.ID, TokenName: "test", UserAgent: "Mozilla/5.0" + strings.Repeat("é", 188) + "…",
			CreatedAt: db.Now(), SeenAt: db.Now(), ExpiresAt: db.Now().Add(7 * 24 * time.Hour),
		}}, own)
		all, err := a.Logins(t.Context(), models.System(), "", 10)
		require.NoError(t, err)
		require.Len(t, all, 2)
		next, err := a.Logins(t.Context(), models.System(), all[0].ID, 10)
		require.NoError(t, err)
		require.Equal(t, all[1:], next)

		require.True(t, errs.Is(a.EndLogin(t.Context(), p, all[1].ID), errs.NotFound), "the login of another token")
		require.NoError(t, a.EndLogin(t.Context(), models.System(), all[1].ID))
		requireEnded(t, a, second)
		require.True(t, errs.Is(a.EndLogin(t.Context(), models.System(), all[1].ID), errs.NotFound))

		former := login(t, a, token.Secret)
		latest, _, err := a.Login(t.Context(), auth.LoginDraft{Token: other.Secret, Former: former})
		require.NoError(t, err)
		requireEnded(t, a, former)
		_, err = a.VerifyLogin(t.Context(), cookie)
		require.NoError(t, err)
		require.NoError(t, a.Logout(t.Context(), latest))
		requireEnded(t, a, latest)
		require.NoError(t, a.Logout(t.Context(), latest))
	})
}

// TestLoginsEnd: a login ends with its token, in time, and after 12 hours without use.
func TestLoginsEnd(t *testing.T) {
	t.Parallel()
	bound := auth.TokenDraft{Scopes: reading.Scopes, AgentID: new("helper")}
	for name, of := range map[string]struct {
		draft auth.TokenDraft
		end   func(*testing.T, *storetest.DB, *auth.Auth, *registry.Registry, models.Token)
		code  errs.Code
	}{
		"the token is revoked": {reading, func(t *testing.T, _ *storetest.DB, a *auth.Auth, _ *registry.Registry, token models.Token) {
			require.NoError(t, a.Revoke(t.Context(), models.System(), token.ID, nil))
		}, errs.Unauthenticated},
		"the token is rotated": {reading, func(t *testing.T, _ *storetest.DB, a *auth.Auth, _ *registry.Registry, token models.Token) {
			_, err := a.Rotate(t.Context(), models.System(), token.ID, nil, nil)
			require.NoError(t, err)
		}, errs.Unauthenticated},
		"the agent is deactivated": {bound, func(t *testing.T, db *storetest.DB, _ *auth.Auth, reg *registry.Registry, _ models.Token) {
			require.NoError(t, reg.Deactivate(t.Context(), models.System(), "helper", nil))
			db.Clock.Advance(750 * time.Millisecond)
		}, errs.AgentInactive},
		"12 hours without use": {reading, func(_ *testing.T, db *storetest.DB, _ *auth.Auth, _ *registry.Registry, _ models.Token) {
			db.Clock.Advance(12 * time.Hour)
		}, errs.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			storetest.Run(t, func(t *testing.T, db *storetest.DB) {
				a, reg := auth.New(db.Store, &auth.Options{Clock: db.Now}), registry.New(db.Store, nil)
				require.NoError(t, reg.Bootstrap(t.Context()))
				_, err := reg.Create(t.Context(), models.System(), models.AgentDraft{
					ID: new("helper"), Name: new("Helper"), Level: new(models.LevelSpecialist), SphereID: new(1), FrequencyHz: new(555), ParentID: new("orch-personnel"),
				}, nil)
				require.NoError(t, err)
				token := issue(t, a, of.draft)
				cookie := login(t, a, token.Secret)
				of.end(t, db, a, reg, token.Token)
				for range 2 { // the second one is cached
					_, err = a.VerifyLogin(t.Context(), cookie)
					require.Equal(t, of.code, errs.CodeOf(err), err)
				}
				require.NoError(t, a.Purge(t.Context()))
				left, err := a.Logins(t.Context(), models.System(), "", 10)
				require.NoError(t, err)
				require.Equal(t, of.code == errs.AgentInactive, len(left) == 1, "an agent can be activated again")
			})
		})
	}
	t.Run("the token expires", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			a := auth.New(db.Store, nil)
			cookie := login(t, a, issue(t, a, auth.TokenDraft{Scopes: reading.Scopes, ExpiresAt: new(db.Now().Add(time.Hour))}).Secret)
			p, err := a.VerifyLogin(t.Context(), cookie)
			require.NoError(t, err)
			require.Equal(t, db.Now().Add(time.Hour), p.LoginEnds)
			db.Clock.Advance(time.Hour)
			requireEnded(t, a, cookie)
		})
	})
	t.Run("7 days with use", func(t *testing.T) {
		t.Parallel()
		storetest.Run(t, func(t *testing.T, db *storetest.DB) {
			a := auth.New(db.Store, &auth.Options{Clock: db.Now})
			cookie := login(t, a, issue(t, a, reading).Secret)
			for range 7*3 - 1 {
				db.Clock.Advance(8 * time.Hour)
				_, err := a.VerifyLogin(t.Context(), cookie)
				require.NoError(t, err)
				require.NoError(t, a.Stop(t.Context()), "it stores the last use")
				all, err := a.Logins(t.Context(), models.System(), "", 10)
				require.NoError(t, err)
				require.Equal(t, db.Now(), all[0].SeenAt)
			}
			db.Clock.Advance(8 * time.Hour)
			requireEnded(t, a, cookie)
		})
	})
}

// TestLoginsOnReplicas: another replica, which has just verified a login, sees its end within its cache time.
func TestLoginsOnReplicas(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		clock := storetest.NewClock()
		here, there := auth.New(db.Store, nil), auth.New(db.Store, &auth.Options{Clock: clock.Now})
		for _, end := range []func(token models.Token, cookie string) error{
			func(_ models.Token, cookie string) error { return here.Logout(t.Context(), cookie) },
			func(token models.Token, _ string) error {
				return here.Revoke(t.Context(), models.System(), token.ID, nil)
			},
			func(token models.Token, _ string) error {
				_, err := here.Rotate(t.Context(), models.System(), token.ID, nil, nil)
				return err
			},
		} {
			token := issue(t, here, reading)
			cookie := login(t, here, token.Secret)
			_, err := there.VerifyLogin(t.Context(), cookie)
			require.NoError(t, err)
			require.NoError(t, end(token.Token, cookie))
			requireEnded(t, here, cookie)
			_, err = there.VerifyLogin(t.Context(), cookie)
			require.NoError(t, err, "it is cached")
			clock.Advance(750 * time.Millisecond)
			requireEnded(t, there, cookie)
		}
	})
}

func TestLoginCodes(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, &auth.Options{Clock: db.Now})
		token := issue(t, a, reading)
		code := func() string {
			code, expires, err := a.LoginCode(t.Context(), token.Secret)
			require.NoError(t, err)
			require.Equal(t, db.Now().Add(time.Minute), expires)
			return code
		}
		_, _, err := a.LoginCode(t.Context(), "wrong")
		require.True(t, errs.Is(err, errs.Unauthenticated))

		shared := code()
		var all sync.WaitGroup
		var accepted, refused atomic.Int64
		for range 8 {
			all.Go(func() {
				switch _, p, err := a.Login(t.Context(), auth.LoginDraft{Code: shared}); {
				case err == nil && p.TokenID == token.Token.ID:
					accepted.Add(1)
				case errs.Is(err, errs.Unauthenticated):
					refused.Add(1)
				}
			})
		}
		all.Wait()
		require.Equal(t, [2]int64{1, 7}, [2]int64{accepted.Load(), refused.Load()})

		refuse := func(code string) {
			t.Helper()
			_, _, err := a.Login(t.Context(), auth.LoginDraft{Code: code})
			require.True(t, errs.Is(err, errs.Unauthenticated), err)
		}
		late := code()
		db.Clock.Advance(time.Minute)
		refuse(late)
		require.NoError(t, a.Purge(t.Context()))

		oldest := code()
		for range 100 {
			db.Clock.Advance(time.Microsecond)
			code()
		}
		refuse(oldest)

		last := code()
		_, err = a.Rotate(t.Context(), models.System(), token.Token.ID, nil, nil)
		require.NoError(t, err)
		refuse(last)
	})
}

func TestLoginLimit(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := auth.New(db.Store, nil)
		token := issue(t, a, reading)
		first, second := login(t, a, token.Secret), login(t, a, token.Secret)
		for range 99 {
			login(t, a, token.Secret)
		}
		requireEnded(t, a, first)
		_, err := a.VerifyLogin(t.Context(), second)
		require.NoError(t, err)
		all, err := a.Logins(t.Context(), models.System(), "", 200)
		require.NoError(t, err)
		require.Len(t, all, 100)
	})
}

// TestWrongSecretsDisplaceNoLogin checks that invalid secrets do not evict cached logins.
func TestWrongSecretsDisplaceNoLogin(t *testing.T) {
	t.Parallel()
	var reads atomic.Int32
	opts := storetest.Migrated(t, "sqlite")
	opts.Connector = storetest.Statements(func(s storetest.Statement) {
		if strings.Contains(s.Query, "FROM logins WHERE id_hash") {
			reads.Add(1)
		}
	})
	s, err := store.Open(t.Context(), opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	now := time.Now()
	a := auth.New(s, &auth.Options{Clock: func() time.Time { return now }})
	issued, err := a.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("test"), Scopes: reading.Scopes}, nil)
	require.NoError(t, err)
	cookie := login(t, a, issued.Secret)
	for i := range 10_100 {
		requireEnded(t, a, fmt.Sprint("guess", i))
	}
	before := reads.Load()
	requireEnded(t, a, "guess10099")
	_, err = a.VerifyLogin(t.Context(), cookie)
	require.NoError(t, err)
	require.Equal(t, before, reads.Load(), "both are cached")
}

// TestLoginWithJWT: the login of a JWT, which is not stored elsewhere, expires with it.
func TestLoginWithJWT(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		jwt := models.Token{
			ID: "oidc:1", Name: "oidc:ada", Scopes: reading.Scopes, CreatedBy: "https://issuer", CreatedAt: db.Now(), ExpiresAt: new(db.Now().Add(time.Hour)),
		}
		a := auth.New(db.Store, &auth.Options{JWTs: func(_ context.Context, secret string, _ time.Time) (models.Token, error) {
			if secret != "jwt" {
				return models.Token{}, errs.New(errs.NotFound, "no JWT")
			}
			return jwt, nil
		}})
		code, _, err := a.LoginCode(t.Context(), "jwt")
		require.NoError(t, err)
		for _, draft := range []auth.LoginDraft{{Token: "jwt"}, {Code: code}} {
			cookie, p, err := a.Login(t.Context(), draft)
			require.NoError(t, err)
			require.Equal(t, models.Principal{TokenID: jwt.ID, Name: jwt.Name, Scopes: jwt.Scopes, Issued: &jwt, LoginID: p.LoginID, LoginEnds: *jwt.ExpiresAt}, p)
			own, err := a.Logins(t.Context(), p, "", 10)
			require.NoError(t, err)
			require.Equal(t, jwt.Name, own[0].TokenName)
			defer requireEnded(t, a, cookie)
		}
		db.Clock.Advance(time.Hour)
	})
}
