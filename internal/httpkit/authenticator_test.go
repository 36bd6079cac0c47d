package httpkit_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/httpkit"
	"comet/models"
	"comet/store/storetest"
)

// authFixture is an authenticator over a store, with a clock of its own.
type authFixture struct {
	*httpkit.Authenticator
	tokens   *auth.Auth
	now      time.Time
	failures atomic.Int64
}

func setup(t *testing.T, fn func(t *testing.T, f *authFixture)) {
	t.Helper()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		f := &authFixture{tokens: auth.New(db.Store, nil), now: db.Now()}
		f.Authenticator = httpkit.NewAuthenticator(f.tokens, &httpkit.AuthenticatorOptions{
			Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3, RateLimit: 1000}),
			Clock:  func() time.Time { return f.now }, OnFailure: func() { f.failures.Add(1) },
		})
		fn(t, f)
	})
}

func (f *authFixture) issue(t *testing.T) auth.Issued {
	t.Helper()
	issued, err := f.tokens.Create(t.Context(), models.System(), auth.TokenDraft{Name: new("t"), Scopes: []models.Scope{models.ScopeAdmin}}, nil)
	require.NoError(t, err)
	return issued
}

// try authenticates a request from an address with a token.
func (f *authFixture) try(t *testing.T, address, token string) error {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.RemoteAddr = address
	r.Header.Set("Authorization", "Bearer "+token)
	_, err := f.Authenticate(httptest.NewRecorder(), r)
	return err
}

// throttle sends wrong tokens from an address until it is throttled.
func (f *authFixture) throttle(t *testing.T, address string) {
	t.Helper()
	for i := range 3 {
		err := f.try(t, address, "wrong"+strconv.Itoa(i))
		require.True(t, errs.Is(err, errs.Unauthenticated))
		require.False(t, httpkit.IsThrottled(err))
	}
}

func TestThrottling(t *testing.T) {
	t.Parallel()
	const address = "192.0.2.1:1000"

	t.Run("rejects wrong tokens of an address for the rest of the minute", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, f *authFixture) {
			f.throttle(t, address)
			f.now = f.now.Add(20 * time.Second)
			err := f.try(t, address, "wrong")
			require.True(t, httpkit.IsThrottled(err))
			limited := errs.From(httpkit.AsRateLimited(err))
			require.Equal(t, errs.RateLimited, limited.Code)
			require.Equal(t, 40, limited.Meta["retry_after"])
			require.EqualValues(t, 3, f.failures.Load())
			require.False(t, httpkit.IsThrottled(f.try(t, "192.0.2.2:1000", "wrong")), "another address is not affected")
			f.now = f.now.Add(40 * time.Second)
			require.False(t, httpkit.IsThrottled(f.try(t, address, "wrong")))
		})
	})
	t.Run("does not lock out valid tokens of the same address", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, f *authFixture) {
			known, unknown := f.issue(t), f.issue(t)
			require.NoError(t, f.try(t, address, known.Secret))
			f.throttle(t, address)
			require.NoError(t, f.try(t, address, known.Secret))
			require.NoError(t, f.try(t, address, unknown.Secret), "a token that was not used before")
		})
	})
	t.Run("limits how many unknown tokens a throttled address can try, but not the known ones", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, f *authFixture) {
			known, unknown := f.issue(t), f.issue(t)
			require.NoError(t, f.try(t, address, known.Secret))
			f.throttle(t, address)
			for i := range 100 {
				require.True(t, httpkit.IsThrottled(f.try(t, address, "guess"+strconv.Itoa(i))))
			}
			require.True(t, httpkit.IsThrottled(f.try(t, address, unknown.Secret)))
			require.NoError(t, f.try(t, address, known.Secret))
			f.now = f.now.Add(time.Second)
			require.NoError(t, f.try(t, address, unknown.Secret), "it is accepted as soon as the guesses pause")
		})
	})
	t.Run("counts a revoked token that was accepted before", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, f *authFixture) {
			issued := f.issue(t)
			f.issue(t)
			require.NoError(t, f.try(t, address, issued.Secret))
			require.NoError(t, f.tokens.Revoke(t.Context(), models.System(), issued.Token.ID, nil))
			require.True(t, f.Revoked(t.Context(), issued.Secret))
			for range 3 {
				require.False(t, httpkit.IsThrottled(f.try(t, address, issued.Secret)))
			}
			require.True(t, httpkit.IsThrottled(f.try(t, address, issued.Secret)))
		})
	})
	t.Run("counts the addresses of an IPv6 subscriber together", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, f *authFixture) {
			f.throttle(t, "[2001:db8:1:2::1]:1")
			require.True(t, httpkit.IsThrottled(f.try(t, "[2001:db8:1:2::2]:1", "wrong")))
			require.False(t, httpkit.IsThrottled(f.try(t, "[2001:db8:1:3::1]:1", "wrong")))
		})
	})
	t.Run("counts invalid signatures of an address and of an agent", func(t *testing.T) {
		t.Parallel()
		setup(t, func(t *testing.T, f *authFixture) {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.RemoteAddr = address
			client := httpkit.ClientPrefix(r)
			require.False(t, f.CountBadSignature(client, "ada", ""))
			require.False(t, f.CountBadSignature(client, "ada", ""))
			require.True(t, f.CountBadSignature(client, "ada", ""))
			require.Equal(t, time.Minute, f.AddressWait(client))
			require.Equal(t, time.Minute, f.AgentWait("ada"))
			require.Zero(t, f.AgentWait("bob"))
		})
	})
}

func TestBearerToken(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{"Bearer x": "x", "bearer  x ": "x", "Bearer": "", "Bearer ": "", "Basic x": "", "": ""} {
		got, err := httpkit.BearerToken([]string{value})
		require.Equal(t, want, got, value)
		require.Equal(t, want == "", errs.Is(err, errs.Unauthenticated), value)
	}
	for _, values := range [][]string{nil, {"Bearer x", "Bearer y"}} {
		_, err := httpkit.BearerToken(values)
		require.True(t, errs.Is(err, errs.Unauthenticated))
	}
}

func TestPreferredWait(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]struct {
		wait      time.Duration
		preferred bool
		invalid   bool
	}{
		"wait=10":                          {wait: 10 * time.Second, preferred: true},
		"respond-async, WAIT = \"3\"; x=1": {wait: 3 * time.Second, preferred: true},
		"wait=0":                           {preferred: true},
		"wait=61":                          {wait: time.Minute, preferred: true},
		"wait=99999999999999999999":        {wait: time.Minute, preferred: true},
		"respond-async":                    {},
		"wait=soon":                        {invalid: true},
		"wait":                             {invalid: true},
		"wait=-1":                          {invalid: true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Prefer", value)
		wait, preferred, err := httpkit.PreferredWait(r, time.Minute)
		require.Equal(t, want.invalid, errs.Is(err, errs.InvalidHeader), value)
		require.Equal(t, want.wait, wait, value)
		require.Equal(t, want.preferred, preferred, value)
	}
}

func TestAppendEvent(t *testing.T) {
	t.Parallel()
	require.Equal(t, "id: 7\nevent: a.b\ndata: {}\n\n", string(httpkit.AppendEvent(nil, "7", "a.b", []byte("{}"))))
	require.Equal(t, "data: one\ndata: two\n\n", string(httpkit.AppendEvent(nil, "", "", []byte("one\ntwo"))))
}

func TestStreamLimits(t *testing.T) {
	t.Parallel()
	s := httpkit.NewStreamLimits(20)
	var last func()
	for range 2 {
		release, err := s.Acquire("a")
		require.NoError(t, err)
		last = release
	}
	_, err := s.Acquire("a")
	require.True(t, errs.Is(err, errs.Busy), "a tenth is for one token")
	last()
	_, err = s.Acquire("a")
	require.NoError(t, err)

	ctx, stop := s.UntilDrain(t.Context())
	defer stop()
	require.False(t, s.Draining())
	s.Drain()
	s.Drain()
	require.True(t, s.Draining())
	<-ctx.Done()
}

func TestTokensOfOneAddressHaveSeparateSharesOfTheBytesInFlight(t *testing.T) {
	t.Parallel()
	setup(t, func(t *testing.T, f *authFixture) {
		const limit = 1 << 20
		b := httpkit.NewBytesInFlight(limit)
		post := func(token string, then func()) {
			b.Bound(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, err := f.Authenticate(w, r)
				_, _, failed := httpkit.ReadBody(w, r, httpkit.BodyRules{Limit: limit})
				assert.NoError(t, errors.Join(err, failed))
				then()
			})).ServeHTTP(httptest.NewRecorder(), func() *http.Request {
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", bytes.NewReader(make([]byte, limit/4)))
				r.Header.Set("Authorization", "Bearer "+token)
				return r
			}())
		}
		one, other := f.issue(t).Secret, f.issue(t).Secret
		post(one, func() { post(one, func() { post(other, func() { post(other, func() {}) }) }) })
	})
}
