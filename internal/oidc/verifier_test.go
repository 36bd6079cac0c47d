package oidc_test

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/oidc"
	"comet/internal/registry"
	"comet/internal/testkit/issuertest"
	"comet/models"
	"comet/store/storetest"
)

// issuerFixture accepts tokens of an issuer.
type issuerFixture struct {
	*auth.Auth
	issuer *issuertest.Issuer
	db     *storetest.DB
}

func withIssuer(t *testing.T, db *storetest.DB, change func(*oidc.Options)) *issuerFixture {
	t.Helper()
	f := &issuerFixture{issuer: issuertest.New(t), db: db}
	f.issuer.Now = db.Now
	o := oidc.Options{URL: f.issuer.URL, Audience: issuertest.Audience, ScopeClaim: "scope", Scopes: []string{
		"agents:read", "tools:call", "agents:write=staff", "tasks:read=staff", "admin=boss",
	}}
	if change != nil {
		change(&o)
	}
	f.use(o, db.Now)
	require.NoError(t, registry.New(db.Store, nil).Bootstrap(t.Context()))
	return f
}

// use makes Verify accept tokens of another issuer.
func (f *issuerFixture) use(o oidc.Options, clock func() time.Time) {
	o.Clock, o.Logger = clock, slog.New(slog.DiscardHandler)
	f.Auth = auth.New(f.db.Store, &auth.Options{Clock: clock, JWTs: oidc.New(o).Token, JWTSettings: o.Fingerprint()})
}

// stored creates a token that comet stores.
func (f *issuerFixture) stored(t *testing.T) auth.Issued {
	t.Helper()
	issued, err := f.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("test"), Scopes: []models.Scope{models.ScopeAgentsRead}}, nil)
	require.NoError(t, err)
	return issued
}

func (f *issuerFixture) accepts(t *testing.T, token string) models.Principal {
	t.Helper()
	p, err := f.Verify(t.Context(), token)
	require.NoError(t, err)
	return p
}

func (f *issuerFixture) rejects(t *testing.T, token, reason string) {
	t.Helper()
	_, err := f.Verify(t.Context(), token)
	require.True(t, errs.Is(err, errs.Unauthenticated), err)
	require.ErrorContains(t, err, reason)
}

func TestTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		f := withIssuer(t, db, nil)
		p := f.accepts(t, f.issuer.Token(t, map[string]any{"sub": "ada", "aud": []string{"other", issuertest.Audience}, "scope": "openid staff agents:read staff"}))
		require.Equal(t, "oidc:ada", p.Name)
		require.Nil(t, p.AgentID)
		require.Equal(t, []models.Scope{models.ScopeAgentsRead, models.ScopeAgentsWrite, models.ScopeTasksRead}, p.Scopes)
		require.Regexp(t, `^oidc:[0-9a-f]{32}$`, p.TokenID)
		require.Equal(t, p.TokenID, f.accepts(t, f.issuer.Token(t, map[string]any{"sub": "ada", "jti": "2"})).TokenID, "the id follows the subject")
		require.NotEqual(t, p.TokenID, f.accepts(t, f.issuer.Token(t, map[string]any{"sub": "bob"})).TokenID)
		require.Empty(t, f.accepts(t, f.issuer.Token(t, map[string]any{"scope": nil})).Scopes)
		require.Len(t, f.accepts(t, f.issuer.Token(t, map[string]any{"scope": []any{"boss", 7}})).Scopes, 1)
		own, err := f.Get(t.Context(), p, p.TokenID)
		require.NoError(t, err)
		require.Equal(t, f.issuer.URL, own.CreatedBy)
		require.Equal(t, db.Now().Add(time.Hour).Unix(), own.ExpiresAt.Unix())

		stored := f.stored(t)
		require.Equal(t, stored.Token.ID, f.accepts(t, stored.Secret).TokenID)
		require.EqualValues(t, 1, f.issuer.Fetches.Load())
	})
}

func TestRejectedTokensOfAnIssuer(t *testing.T) {
	t.Parallel()
	f := withIssuer(t, storetest.Open(t, "sqlite"), nil)
	now, key := f.db.Now().Unix(), f.issuer.Key()
	for name, c := range map[string]struct {
		claims map[string]any
		reason string
	}{
		"another issuer":         {map[string]any{"iss": f.issuer.URL + "/"}, "another issuer"},
		"another audience":       {map[string]any{"aud": "client"}, "audience"},
		"no audience":            {map[string]any{"aud": nil}, "audience"},
		"expired":                {map[string]any{"exp": now}, "expired"},
		"without expiry":         {map[string]any{"exp": nil}, "expired"},
		"not valid yet":          {map[string]any{"nbf": now + 61}, "not valid yet"},
		"issued in the future":   {map[string]any{"iat": now + 61}, "not valid yet"},
		"without a subject":      {map[string]any{"sub": nil}, "subject"},
		"an invisible subject":   {map[string]any{"sub": "a\nb"}, "subject"},
		"a long subject":         {map[string]any{"sub": strings.Repeat("a", 256)}, "subject"},
		"bound to a key":         {map[string]any{"cnf": map[string]any{"jkt": "x"}}, "bound to a key"},
		"a malformed expiry":     {map[string]any{"exp": "tomorrow"}, "malformed"},
		"a malformed issuer":     {map[string]any{"iss": 1}, "malformed"},
		"expiry beyond all time": {map[string]any{"exp": 1e300}, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f.rejects(t, f.issuer.Token(t, c.claims), c.reason)
		})
	}
	f.accepts(t, f.issuer.Token(t, map[string]any{"nbf": now + 59, "iat": now + 59})) // the clocks may differ
	for _, typ := range []string{"JWT", "application/at+jwt"} {
		f.accepts(t, f.issuer.Sign(t, nil, jose.ES256, key, typ))
	}
	f.rejects(t, f.issuer.Sign(t, nil, jose.ES256, key, "logout+jwt"), "not an access token")

	encode := base64.RawURLEncoding.EncodeToString
	_, payload, _ := strings.Cut(f.issuer.Token(t, nil), ".")
	payload, signature, _ := strings.Cut(payload, ".")
	f.rejects(t, encode([]byte(`{"alg":"none"}`))+"."+payload+".", "unknown, expired or revoked")
	f.rejects(t, encode([]byte(`{"alg":"ES256"}`))+"."+payload+"."+signature, "no key")
	f.rejects(t, encode(fmt.Appendf(nil, `{"alg":"RS256","kid":%q}`, key.KeyID))+"."+payload+"."+signature, "no key")
	f.rejects(t, encode(fmt.Appendf(nil, `{"alg":"ES256","kid":%q,"crit":["x"],"x":1}`, key.KeyID))+"."+payload+"."+signature, "")
	f.rejects(t, "a.b.c", "unknown, expired or revoked")
	public, err := x509.MarshalPKIXPublicKey(key.Public().Key)
	require.NoError(t, err)
	f.rejects(t, f.issuer.Sign(t, nil, jose.HS256, jose.JSONWebKey{Key: public, KeyID: key.KeyID}, "at+jwt"), "unknown, expired or revoked")
	other := issuertest.New(t)
	other.URL, other.Now = f.issuer.URL, f.db.Now
	forged := other.Key()
	forged.KeyID = key.KeyID
	f.rejects(t, other.Sign(t, nil, jose.ES256, forged, "at+jwt"), "signature")
	f.rejects(t, f.issuer.Sign(t, nil, jose.ES256, jose.JSONWebKey{Key: key.Key, KeyID: "k2"}, "at+jwt"), "no key")
	require.EqualValues(t, 1, f.issuer.Fetches.Load(), "invalid tokens cause no fetch")
}

func TestAlgorithmsOfAnIssuer(t *testing.T) {
	t.Parallel()
	f := withIssuer(t, storetest.Open(t, "sqlite"), nil)
	pair, err := rsa.GenerateKey(rand.Reader, 2048)
	require.NoError(t, err)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	require.NoError(t, err)
	for algorithm, key := range map[jose.SignatureAlgorithm]any{jose.RS256: pair, jose.PS256: pair, jose.EdDSA: edwards} {
		f.issuer.SetKey(jose.JSONWebKey{Key: key, KeyID: string(algorithm), Algorithm: string(algorithm)})
		f.db.Clock.Advance(10 * time.Second)
		f.accepts(t, f.issuer.Token(t, nil))
	}
	f.issuer.SetKey(jose.JSONWebKey{Key: pair, KeyID: "enc", Algorithm: string(jose.RS256), Use: "enc"})
	f.db.Clock.Advance(10 * time.Second)
	f.rejects(t, f.issuer.Token(t, nil), "no key")
}

// TestKeysOfAnIssuer rotates the keys and sends tokens with invented ones.
func TestKeysOfAnIssuer(t *testing.T) {
	t.Parallel()
	f := withIssuer(t, storetest.Open(t, "sqlite"), nil)
	before := f.issuer.Token(t, nil)
	f.accepts(t, before)

	var flood sync.WaitGroup
	for n := range 200 {
		invented := jose.JSONWebKey{Key: f.issuer.Key().Key, KeyID: fmt.Sprint(n)}
		token := f.issuer.Sign(t, nil, jose.ES256, invented, "at+jwt")
		flood.Go(func() {
			_, err := f.Verify(context.Background(), token)
			if !errs.Is(err, errs.Unauthenticated) {
				t.Error(err)
			}
		})
	}
	flood.Wait()
	require.EqualValues(t, 1, f.issuer.Fetches.Load())

	f.issuer.Rotate(t)
	after := f.issuer.Token(t, nil)
	f.rejects(t, after, "no key")
	f.db.Clock.Advance(10 * time.Second)
	f.accepts(t, after)
	require.EqualValues(t, 2, f.issuer.Fetches.Load())
	f.rejects(t, before, "no key")

	f.issuer.Away.Store(true)
	f.db.Clock.Advance(6 * time.Minute)
	f.accepts(t, after) // with the known key, although it is old
	require.Eventually(t, func() bool { return f.issuer.Fetches.Load() == 3 }, time.Minute, 5*time.Millisecond)
}

func TestAnIssuerThatIsAway(t *testing.T) {
	t.Parallel()
	f := withIssuer(t, storetest.Open(t, "sqlite"), nil)
	f.issuer.Away.Store(true)
	token := f.issuer.Token(t, nil)
	for range 3 {
		_, err := f.Verify(t.Context(), token)
		require.True(t, errs.Is(err, errs.Unavailable), err)
	}
	require.EqualValues(t, 1, f.issuer.Fetches.Load())
	stored := f.stored(t)
	f.accepts(t, stored.Secret)
	f.rejects(t, f.issuer.Token(t, map[string]any{"exp": 1}), "expired")

	f.issuer.Away.Store(false)
	f.db.Clock.Advance(10 * time.Second)
	f.accepts(t, token)
}

// TestAnIssuerThatHangs: only requests with a token of the issuer wait for it, and not longer than they may take.
func TestAnIssuerThatHangs(t *testing.T) {
	t.Parallel()
	asked, released := make(chan struct{}), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(asked); <-released }))
	defer server.Close()
	defer close(released)
	f := withIssuer(t, storetest.Open(t, "sqlite"), func(o *oidc.Options) { o.URL = server.URL })
	f.issuer.URL = server.URL
	ctx, cancel := context.WithCancel(t.Context())
	ended, token := make(chan error), f.issuer.Token(t, nil)
	go func() { _, err := f.Verify(ctx, token); ended <- err }()
	<-asked
	f.accepts(t, f.stored(t).Secret)
	cancel()
	require.True(t, errs.Is(<-ended, errs.Unavailable))
}

func TestDocumentsOfAnIssuer(t *testing.T) {
	t.Parallel()
	for name, document := range map[string]string{
		"another issuer": `{"issuer":"https://evil.example","jwks_uri":"%s/keys"}`, "no JSON": `<html>`,
		"too long": `{"issuer":"%[1]s","jwks_uri":"%[1]s/keys","x":"` + strings.Repeat("x", 256<<10) + `"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := withIssuer(t, storetest.Open(t, "sqlite"), nil)
			proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "configuration") {
					_, _ = w.Write([]byte(strings.ReplaceAll(strings.ReplaceAll(document, "%[1]s", f.issuer.URL), "%s", f.issuer.URL)))
					return
				}
				f.issuer.ServeHTTP(w, r)
			}))
			defer proxy.Close()
			f.issuer.URL = proxy.URL
			f.use(oidc.Options{URL: proxy.URL, Audience: issuertest.Audience}, time.Now)
			_, err := f.Verify(t.Context(), f.issuer.Token(t, map[string]any{"exp": time.Now().Add(time.Hour).Unix()}))
			require.True(t, errs.Is(err, errs.Unavailable), err)
		})
	}
}

// TestAgentsOfAnIssuer: a token is bound to the agent that a claim names.
func TestAgentsOfAnIssuer(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		f := withIssuer(t, db, func(o *oidc.Options) { o.AgentClaim = "agent" })
		reg := registry.New(db.Store, nil)
		_, err := reg.Create(t.Context(), models.System(), models.AgentDraft{ID: new("helper"), Name: new("Helper"), Level: new(models.LevelSpecialist), SphereID: new(1), FrequencyHz: new(555), ParentID: new("orch-personnel")}, nil)
		require.NoError(t, err)
		f.rejects(t, f.issuer.Token(t, nil), `no claim "agent"`)
		f.rejects(t, f.issuer.Token(t, map[string]any{"agent": 7}), `no claim "agent"`)
		f.rejects(t, f.issuer.Token(t, map[string]any{"agent": "none"}), "does not exist")
		f.rejects(t, f.issuer.Token(t, map[string]any{"agent": "helper", "scope": "boss"}), "level 2")

		token := f.issuer.Token(t, map[string]any{"agent": "helper", "scope": "staff"})
		p := f.accepts(t, token)
		require.Equal(t, "helper", *p.AgentID)
		require.True(t, errs.Is(reg.Confine(t.Context(), p, "orch-business"), errs.ForeignAgent))
		require.NotEqual(t, p.TokenID, f.accepts(t, f.issuer.Token(t, map[string]any{"agent": "orch-business"})).TokenID, "the id follows the agent")
		draft := auth.TokenDraft{Name: new("child"), Scopes: []models.Scope{models.ScopeAgentsRead}}
		_, err = f.Create(t.Context(), p, draft, nil)
		require.True(t, errs.Is(err, errs.MissingScope), err)
		listed, err := f.List(t.Context(), p, "", 10)
		require.NoError(t, err)
		require.Empty(t, listed)
		require.True(t, errs.Is(f.Revoke(t.Context(), p, p.TokenID, nil), errs.NotFound))
		_, err = f.Create(t.Context(), f.accepts(t, f.issuer.Token(t, map[string]any{"agent": models.RootAgentID, "scope": "boss"})), draft, nil)
		require.NoError(t, err)

		hash := sha256.Sum256([]byte(token))
		lapsed, err := f.Lapsed(t.Context(), [][32]byte{hash})
		require.NoError(t, err)
		require.Empty(t, lapsed)
		require.NoError(t, reg.Deactivate(t.Context(), models.System(), "helper", nil))
		lapsed, err = f.Lapsed(t.Context(), [][32]byte{hash})
		require.NoError(t, err)
		require.Len(t, lapsed, 1)
		_, err = f.Verify(t.Context(), token)
		require.True(t, errs.Is(err, errs.AgentInactive), err)
	})
}

// TestExpiryOfAnIssuersToken: a token ends to the second, also one that was just verified.
func TestExpiryOfAnIssuersToken(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		f := withIssuer(t, db, nil)
		token := f.issuer.Token(t, map[string]any{"exp": db.Now().Unix() + 60})
		hash := sha256.Sum256([]byte(token))
		f.accepts(t, token)
		db.Clock.Advance(59 * time.Second)
		f.accepts(t, token)
		lapsed, err := f.Lapsed(t.Context(), [][32]byte{hash})
		require.NoError(t, err)
		require.Empty(t, lapsed)
		db.Clock.Advance(time.Second)
		f.rejects(t, token, "expired")
		lapsed, err = f.Lapsed(t.Context(), [][32]byte{hash})
		require.NoError(t, err)
		require.Len(t, lapsed, 1)
	})
}

// TestLoginsEndWithTheSettings checks that a login with a JWT ends when the settings of its rights change or the issuer is
// removed, and that it continues after a restart with the same settings.
func TestLoginsEndWithTheSettings(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		var settings oidc.Options
		f := withIssuer(t, db, func(o *oidc.Options) { settings = *o })
		cookie, _, err := f.Login(t.Context(), auth.LoginDraft{Token: f.issuer.Token(t, map[string]any{"sub": "ada", "scope": "boss"})})
		require.NoError(t, err)
		same := func() error {
			_, err := f.VerifyLogin(t.Context(), cookie)
			return err
		}
		f.use(settings, db.Now) // a restart
		require.NoError(t, same())
		for name, change := range map[string]func(*oidc.Options){
			"another issuer":   func(o *oidc.Options) { o.URL += "/other" },
			"another audience": func(o *oidc.Options) { o.Audience = "other" },
			"another mapping":  func(o *oidc.Options) { o.Scopes = []string{"admin=owner"} },
			"an agent":         func(o *oidc.Options) { o.AgentClaim = "agent" },
		} {
			changed := settings
			change(&changed)
			f.use(changed, db.Now)
			require.True(t, errs.Is(same(), errs.Unauthenticated), name)
		}
		f.Auth = auth.New(db.Store, &auth.Options{Clock: db.Now})
		require.True(t, errs.Is(same(), errs.Unauthenticated), "no issuer")
		f.use(settings, db.Now)
		require.NoError(t, same())
	})
}
