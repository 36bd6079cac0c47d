package tools_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/events"
	"comet/internal/netguard"
	"comet/internal/testkit"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/store"
	"comet/store/seal"
	"comet/store/storetest"
)

// authorized has tools with an upstream that requires an authorization.
type authorized struct {
	*toolstest.Tools
	*provider
}

func authorizedOptions() *toolstest.Options {
	keys, _ := seal.Parse(seal.NewKey())
	return &toolstest.Options{Tools: tools.Options{
		Keys: keys, RedirectURL: func() string { return "http://127.0.0.1:1/oauth/callback" },
		Guard: netguard.New([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}),
	}}
}

func startAuthorized(t *testing.T, db *storetest.DB, p *provider) authorized {
	t.Helper()
	a := authorized{toolstest.Start(t, db, authorizedOptions()), p}
	a.put(t, `{"url":`+fmt.Sprintf("%q", p.Endpoint)+`}`)
	a.waitFor(t, upstream.AuthorizationRequired)
	return a
}

func (a authorized) put(t *testing.T, config string) {
	t.Helper()
	_, err := a.PutUpstream(t.Context(), testkit.Admin(), "paper", json.RawMessage(config), nil)
	require.NoError(t, err)
}

func (a authorized) waitFor(t *testing.T, state upstream.State) (s upstream.Status) {
	t.Helper()
	toolstest.Eventually(t, func() bool {
		s, _ = a.Upstream("paper")
		return s.State == state
	}, "the upstream is "+string(state))
	return s
}

// browse opens the URL of a new authorization, as a browser does, and returns the parameters with which the
// browser returns.
func (a authorized) browse(t *testing.T) url.Values {
	t.Helper()
	address, until, err := a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
	require.NoError(t, err)
	require.WithinDuration(t, a.DB.Now().Add(10*time.Minute), until, time.Second)
	asked, err := url.Parse(address)
	require.NoError(t, err)
	require.Equal(t, "S256", asked.Query().Get("code_challenge_method"))
	require.Equal(t, "notes offline_access", asked.Query().Get("scope"))
	require.Equal(t, a.Endpoint, asked.Query().Get("resource"))
	back := a.Browse(t, address)
	require.Equal(t, "/oauth/callback", back.Path)
	return back.Query()
}

func (a authorized) authorize(t *testing.T) {
	t.Helper()
	id, err := a.FinishAuthorization(t.Context(), a.browse(t))
	require.NoError(t, err)
	require.Equal(t, "paper", id)
	a.waitFor(t, upstream.Ready)
	a.WaitForTools(t, "paper")
}

func (a authorized) call(t *testing.T) {
	t.Helper()
	a.Admin().RequireSays(t, "{}", "paper:echo", nil)
}

func TestAuthorizeUpstream(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		require.Contains(t, a.waitFor(t, upstream.AuthorizationRequired).Error, "comet upstreams authorize paper")
		a.authorize(t)
		a.call(t)
		status := a.waitFor(t, upstream.Ready)

		_, _, err := a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper") // another one is in progress
		require.NoError(t, err)
		stored, err := store.Rows[[]byte](db.Reads(t.Context()), "SELECT sealed FROM upstream_credentials UNION ALL SELECT sealed FROM upstream_authorizations")
		require.NoError(t, err)
		require.Len(t, stored, 2)
		text, err := json.Marshal(status)
		require.NoError(t, err)
		require.Len(t, a.Issued, 4)
		for _, secret := range a.Issued {
			require.NotContains(t, string(bytes.Join(stored, nil)), secret)
			require.NotContains(t, string(text), secret)
		}

		a = authorized{a.Restart(t), a.provider}
		a.WaitForTools(t, "paper")
		a.call(t)

		other, headers := newRejecting(t) // another address does not get the token
		a.put(t, fmt.Sprintf(`{"url":%q}`, other))
		a.waitFor(t, upstream.AuthorizationRequired)
		require.Equal(t, []string{""}, headers())

		require.NoError(t, a.RemoveUpstream(t.Context(), testkit.Admin(), "paper", nil)) // deletes the tokens
		a.put(t, fmt.Sprintf(`{"url":%q}`, a.Endpoint))
		a.waitFor(t, upstream.AuthorizationRequired)
	})
}

func TestInvalidAuthorizations(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		finish := func(params url.Values) error {
			_, err := a.FinishAuthorization(t.Context(), params)
			return err
		}
		back := a.browse(t)
		toolstest.RequireError(t, finish(url.Values{"state": {"another"}, "code": back["code"]}), errs.InvalidRequest, "unknown")
		toolstest.RequireError(t, finish(url.Values{"code": back["code"]}), errs.InvalidRequest, "unknown")

		wrong := url.Values{"state": back["state"], "code": back["code"], "iss": {"https://evil.example"}}
		toolstest.RequireError(t, finish(wrong), errs.InvalidRequest, "evil.example")
		toolstest.RequireError(t, finish(back), errs.InvalidRequest, "has ended") // the state was used

		back = a.browse(t)
		back.Del("iss")
		toolstest.RequireError(t, finish(back), errs.InvalidRequest, "authorization server")

		first := a.browse(t)
		a.browse(t)
		toolstest.RequireError(t, finish(first), errs.InvalidRequest, "has ended") // by the second

		back = a.browse(t)
		db.Clock.Advance(11 * time.Minute)
		toolstest.RequireError(t, finish(back), errs.InvalidRequest, "ten minutes")

		a.Deny = true
		toolstest.RequireError(t, finish(a.browse(t)), errs.InvalidRequest, "access_denied")
		a.Deny = false

		back = a.browse(t)
		back.Set("code", "another")
		err := finish(back)
		toolstest.RequireError(t, err, errs.InvalidRequest, "invalid_grant")
		require.NotContains(t, err.Error(), a.Issued[len(a.Issued)-1], "the description of the error is not repeated")

		back = a.browse(t)
		require.NoError(t, finish(back))
		toolstest.RequireError(t, finish(back), errs.InvalidRequest, "has ended")
		a.waitFor(t, upstream.Ready)
	})
}

func TestUnusableAuthorizationServers(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		p := newProvider(t)
		a := startAuthorized(t, db, p)
		requireError := func(code errs.Code, text string) {
			t.Helper()
			_, _, err := a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
			toolstest.RequireError(t, err, code, text)
		}
		p.Resource = "https://other.example/mcp"
		requireError(errs.UpstreamFailed, "other.example")
		p.Resource, p.Issuer = p.Endpoint, "https://other.example"
		requireError(errs.UpstreamFailed, "does not match")
		p.Issuer, p.Methods = p.URL, []string{"plain"}
		requireError(errs.UpstreamFailed, "S256")
		p.Methods = []string{"S256"}

		a.put(t, `{"command":"true"}`)
		requireError(errs.Conflict, "program")
		a.put(t, fmt.Sprintf(`{"url":%q,"headers":{"authorization":"Bearer ${T:-abc}"}}`, p.Endpoint))
		requireError(errs.Conflict, "contains its token")
		a.put(t, fmt.Sprintf(`{"url":%q}`, p.Endpoint))

		opts := authorizedOptions()
		opts.Tools.Guard = nil // the authorization server has a loopback address
		guarded := authorized{toolstest.Start(t, db, opts), p}
		guarded.waitFor(t, upstream.AuthorizationRequired)
		_, _, err := guarded.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
		toolstest.RequireError(t, err, errs.UpstreamFailed, "loopback")
	})
}

func TestRefreshOfTokens(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)

		db.Clock.Advance(time.Hour)
		a.call(t)
		require.Equal(t, 1, a.Refreshes(), "the token has expired")
		a.call(t)
		require.Equal(t, 1, a.Refreshes(), "the new token is used")

		a.End()
		a.call(t)
		require.Equal(t, 2, a.Refreshes(), "the token was rejected")

		db.Clock.Advance(time.Hour)
		var calls sync.WaitGroup
		for range 20 {
			calls.Go(func() { a.call(t) })
		}
		calls.Wait()
		require.Equal(t, 3, a.Refreshes(), "concurrent calls refresh once")

		next := authorized{a.Restart(t), a.provider}
		next.WaitForTools(t, "paper")
		db.Clock.Advance(time.Hour)
		next.call(t)
		require.Equal(t, 4, a.Refreshes(), "a restart keeps the refresh token")
	})
}

// TestReplicasRefreshOnce uses the tokens of two sessions, as two replicas do.
func TestReplicasRefreshOnce(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)
		var sources []upstream.TokenSource
		for range 4 {
			source, err := a.UpstreamTokens(t.Context(), "paper", a.Endpoint)
			require.NoError(t, err)
			sources = append(sources, source)
		}
		for round := 1; round <= 3; round++ {
			db.Clock.Advance(time.Hour)
			tokens := make([]string, len(sources))
			var replicas sync.WaitGroup
			for i, source := range sources {
				replicas.Go(func() {
					var err error
					tokens[i], err = source(t.Context(), "")
					require.NoError(t, err)
				})
			}
			replicas.Wait()
			for _, token := range tokens {
				require.NotEmpty(t, token)
				require.Equal(t, tokens[0], token)
			}
			require.Equal(t, round, a.Refreshes())
		}
	})
}

func TestRefusedRefresh(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)
		sub, err := a.Feed.SubscribeNew(t.Context())
		require.NoError(t, err)
		sub.Only(events.UpstreamDown, events.UpstreamAuthorized)

		a.Refuse(true)
		db.Clock.Advance(time.Hour)
		_, err = a.Admin().TryCall(t, "paper:echo", nil)
		require.ErrorContains(t, err, "it requires an authorization")
		a.waitFor(t, upstream.AuthorizationRequired)
		batch, err := sub.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Contains(t, string(batch[0].Data), "authorize paper")

		a.Refuse(false)
		a.authorize(t)
		a.call(t)
		batch, err = sub.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, events.UpstreamAuthorized, batch[0].Type)
		require.Contains(t, string(batch[0].Data), testkit.Admin().Name)
	})
}
