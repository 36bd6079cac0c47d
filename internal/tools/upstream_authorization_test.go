package tools_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
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
	return a.browseFor(t, "notes offline_access")
}

// browseFor is browse for an authorization that requests scopes.
func (a authorized) browseFor(t *testing.T, scopes string) url.Values {
	t.Helper()
	address, until, err := a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
	require.NoError(t, err)
	require.WithinDuration(t, a.DB.Now().Add(10*time.Minute), until, time.Second)
	asked, err := url.Parse(address)
	require.NoError(t, err)
	require.Equal(t, "S256", asked.Query().Get("code_challenge_method"))
	require.Equal(t, scopes, asked.Query().Get("scope"))
	require.Equal(t, a.Endpoint, asked.Query().Get("resource"))
	back := a.Browse(t, address)
	require.True(t, strings.HasSuffix(back.Path, "/oauth/callback"))
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

// authorizeFor completes an authorization that requests scopes while the upstream is ready.
func (a authorized) authorizeFor(t *testing.T, scopes string) {
	t.Helper()
	before := a.waitFor(t, upstream.Ready)
	_, err := a.FinishAuthorization(t.Context(), a.browseFor(t, scopes))
	require.NoError(t, err)
	a.waitForNext(t, before)
}

// waitForNext waits for the session after one with the status before.
func (a authorized) waitForNext(t *testing.T, before upstream.Status) {
	t.Helper()
	toolstest.Eventually(t, func() bool {
		s, _ := a.Upstream("paper")
		return s.State == upstream.Ready && s.Since.After(before.Since)
	}, "the upstream has restarted")
	require.Empty(t, a.waitFor(t, upstream.Ready).Warnings)
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
					tokens[i], err = source.Token(t.Context(), "")
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
		sub.Only(events.UpstreamDown) // the event of the first authorization may get its position only now

		a.Refuse(true)
		db.Clock.Advance(time.Hour)
		_, err = a.Admin().TryCall(t, "paper:echo", nil)
		require.ErrorContains(t, err, "it requires an authorization")
		a.waitFor(t, upstream.AuthorizationRequired)
		batch, err := sub.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Contains(t, string(batch[0].Data), "authorize paper")

		sub.Only(events.UpstreamAuthorized)
		a.Refuse(false)
		a.authorize(t)
		a.call(t)
		batch, err = sub.Next(t.Context(), 1)
		require.NoError(t, err)
		require.Equal(t, events.UpstreamAuthorized, batch[0].Type)
		require.Contains(t, string(batch[0].Data), testkit.Admin().Name)
	})
}

// TestScopesOfACall calls a tool that requires more scopes than comet has.
func TestScopesOfACall(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)
		a.Require("tools/call", "notes notes:write")
		sources := make([]upstream.TokenSource, 2) // of other replicas
		for i := range sources {
			var err error
			sources[i], err = a.UpstreamTokens(t.Context(), "paper", a.Endpoint)
			require.NoError(t, err)
		}
		fails := func(texts ...string) {
			t.Helper()
			_, err := a.Admin().TryCall(t, "paper:echo", nil)
			require.Equal(t, upstream.ReasonScope, tools.ErrorDetails(errs.From(err))["reason"])
			for _, text := range texts {
				require.ErrorContains(t, err, text)
			}
		}
		refreshes := a.Refreshes()
		fails(`lacks the scopes "notes:write"`, "comet upstreams authorize paper", `requests "notes offline_access notes:write"`)
		require.Equal(t, 1, a.Forbidden(), "the request is not repeated")
		require.Equal(t, refreshes, a.Refreshes(), "other tokens would have the same scopes")
		status := a.waitFor(t, upstream.Ready) // other tools are still available
		require.Len(t, status.Warnings, 1)
		require.Contains(t, status.Warnings[0], `requests "notes offline_access notes:write"`)
		stored := func() []int64 {
			versions, err := store.Rows[int64](db.Reads(t.Context()), "SELECT version FROM upstream_credentials")
			require.NoError(t, err)
			return versions
		}
		version := stored()
		fails("notes:write")
		require.Equal(t, version, stored(), "a known scope is not stored again")

		var replicas sync.WaitGroup // other replicas see other scopes, while the tokens are refreshed
		db.Clock.Advance(time.Hour)
		for i, source := range sources {
			replicas.Go(func() {
				missing, _, err := source.Require(t.Context(), []string{fmt.Sprintf("notes:%d", i)})
				require.NoError(t, err)
				require.Equal(t, []string{fmt.Sprintf("notes:%d", i)}, missing)
			})
			replicas.Go(func() {
				_, err := source.Token(t.Context(), "")
				require.NoError(t, err)
			})
		}
		replicas.Wait()
		require.Equal(t, refreshes+1, a.Refreshes())
		_, all, err := sources[0].Require(t.Context(), []string{"notes:write", "notes:0", "notes:1"})
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"notes", "offline_access", "notes:write", "notes:0", "notes:1"}, all)
		_, _, err = sources[0].Require(t.Context(), []string{strings.Repeat("x", 3000)})
		require.ErrorContains(t, err, "exceed 2048 bytes")

		a = authorized{a.Restart(t), a.provider}
		a.WaitForTools(t, "paper")
		a.withhold = "notes:write"
		a.authorizeFor(t, strings.Join(all, " "))
		fails(`lacks the scopes "notes notes:write"`, "which has not granted them")
		a.withhold = ""
		a.authorizeFor(t, strings.Join(all, " "))
		a.call(t)

		before := a.waitFor(t, upstream.Ready)
		a.put(t, fmt.Sprintf(`{"url":%q,"comet":{"oauth":{"scopes":["notes"]}}}`, a.Endpoint))
		a.waitForNext(t, before)
		a.browseFor(t, "notes offline_access") // the scopes of the definition are the only ones
		a.Require("tools/call", "notes:admin")
		fails("added to comet.oauth.scopes")
	})
}

// TestScopesOfAnEndedSession records scopes with the tokens of a session whose upstream has got another address or
// was removed.
func TestScopesOfAnEndedSession(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)
		old, err := a.UpstreamTokens(t.Context(), "paper", a.Endpoint)
		require.NoError(t, err)
		b := authorized{a.Tools, newProvider(t)}
		b.put(t, fmt.Sprintf(`{"url":%q}`, b.Endpoint))
		b.waitFor(t, upstream.AuthorizationRequired)
		b.authorize(t)
		stored := func() []string {
			sealed, err := store.Rows[string](db.Reads(t.Context()), "SELECT sealed FROM upstream_credentials")
			require.NoError(t, err)
			return sealed
		}
		before := stored()
		_, _, err = old.Require(t.Context(), []string{"notes:old"})
		require.ErrorContains(t, err, "no longer authorized")
		require.Equal(t, before, stored(), "the tokens and scopes of the new address are kept")
		b.call(t)

		current, err := b.UpstreamTokens(t.Context(), "paper", b.Endpoint)
		require.NoError(t, err)
		require.NoError(t, b.RemoveUpstream(t.Context(), testkit.Admin(), "paper", nil))
		_, _, err = current.Require(t.Context(), []string{"notes:new"})
		require.ErrorContains(t, err, "no longer authorized")
		require.Empty(t, stored())
	})
}

// TestScopesDuringAnAuthorization records scopes between the beginning and the end of another authorization.
func TestScopesDuringAnAuthorization(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.authorize(t)
		finish := func(back url.Values) {
			t.Helper()
			before := a.waitFor(t, upstream.Ready)
			_, err := a.FinishAuthorization(t.Context(), back)
			require.NoError(t, err)
			a.waitForNext(t, before)
		}
		back := a.browse(t)
		a.Require("tools/call", "notes notes:write")
		_, err := a.Admin().TryCall(t, "paper:echo", nil)
		require.ErrorContains(t, err, "lacks the scopes")
		finish(back)
		a.browseFor(t, "notes offline_access notes:write")

		before := a.waitFor(t, upstream.Ready)
		a.put(t, fmt.Sprintf(`{"url":%q,"comet":{"oauth":{"scopes":["notes"]}}}`, a.Endpoint))
		a.waitForNext(t, before)
		finish(a.browse(t)) // the scopes of the definition replace the recorded ones
		before = a.waitFor(t, upstream.Ready)
		a.put(t, fmt.Sprintf(`{"url":%q}`, a.Endpoint))
		a.waitForNext(t, before)
		a.browse(t)

		require.NoError(t, db.Write(t.Context(), func(tx *store.Tx) error {
			_, err := tx.Exec("ALTER TABLE upstream_credentials RENAME TO renamed")
			return err
		}))
		_, _, err = a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
		require.Error(t, err, "the recorded scopes cannot be read")
	})
}

// TestScopesOfASession requires more scopes than comet has for every session.
func TestScopesOfASession(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		a := startAuthorized(t, db, newProvider(t))
		a.Require("tools/list", "notes:list")
		_, err := a.FinishAuthorization(t.Context(), a.browse(t))
		require.NoError(t, err)
		toolstest.Eventually(t, func() bool {
			s, _ := a.Upstream("paper")
			return s.State == upstream.AuthorizationRequired && strings.Contains(s.Error, `requests "notes offline_access notes:list"`)
		}, "the upstream requires another authorization")
		_, err = a.Admin().TryCall(t, "paper:echo", nil)
		require.Error(t, err)
		_, err = a.FinishAuthorization(t.Context(), a.browseFor(t, "notes offline_access notes:list"))
		require.NoError(t, err)
		a.waitFor(t, upstream.Ready)
		a.WaitForTools(t, "paper")
		a.call(t)
	})
}

// TestClientMetadataDocument authorizes comet with the client ids that MCP prefers: a configured one, then the URL
// of a document, then one that is registered.
func TestClientMetadataDocument(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		opts, p := authorizedOptions(), newProvider(t)
		opts.Tools.RedirectURL = func() string { return "https://comet.example.com/base/oauth/callback" }
		a := authorized{toolstest.Start(t, db, opts), p}
		clientID := func() string {
			t.Helper()
			address, _, err := a.AuthorizeUpstream(t.Context(), testkit.Admin(), "paper")
			require.NoError(t, err)
			asked, err := url.Parse(address)
			require.NoError(t, err)
			return asked.Query().Get("client_id")
		}
		a.put(t, fmt.Sprintf(`{"url":%q}`, p.Endpoint))
		a.waitFor(t, upstream.AuthorizationRequired)
		require.Equal(t, "comet-client", clientID())

		p.Documents = true
		const document = "https://comet.example.com/base/oauth/client-metadata.json"
		require.Equal(t, document, clientID())
		metadata, err := a.ClientMetadata()
		require.NoError(t, err)
		text, err := json.Marshal(metadata)
		require.NoError(t, err)
		require.JSONEq(t, `{"client_id":"`+document+`","client_name":"comet","redirect_uris":["https://comet.example.com/base/oauth/callback"],
			"application_type":"web","token_endpoint_auth_method":"none","grant_types":["authorization_code","refresh_token"],"response_types":["code"]}`, string(text))
		registered := len(p.clients)
		_, err = a.FinishAuthorization(t.Context(), a.browse(t))
		require.NoError(t, err)
		a.WaitForTools(t, "paper")
		a.call(t)
		require.Len(t, p.clients, registered, "no client is registered")
		db.Clock.Advance(time.Hour)
		a.call(t)
		require.Equal(t, 1, a.Refreshes())

		a.put(t, fmt.Sprintf(`{"url":%q,"comet":{"oauth":{"client_id":"configured"}}}`, p.Endpoint))
		require.Equal(t, "configured", clientID())

		opts.Tools.RedirectURL = func() string { return "http://127.0.0.1:1/oauth/callback" } // not for documents
		a = authorized{toolstest.Start(t, db, opts), p}
		a.put(t, fmt.Sprintf(`{"url":%q}`, p.Endpoint))
		require.Equal(t, "comet-client", clientID())
		_, err = a.ClientMetadata()
		toolstest.RequireError(t, err, errs.NotFound, "https")
	})
}
