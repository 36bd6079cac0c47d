package remote_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"time"

	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/stretchr/testify/require"

	"comet/internal/a2a/remote"
	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
)

// TestSettings: what Put accepts, stores and returns.
func TestSettings(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		f := newFake(t, streamingCard, nil)
		moved := httptest.NewServer(http.RedirectHandler(f.url(), http.StatusFound))
		t.Cleanup(moved.Close)
		other := newFake(t, `{"name":"x","supportedInterfaces":[{"url":"`+f.server.URL+`","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, nil)
		large := newFake(t, `{"name":"`+string(make([]byte, 300<<10))+`"}`, nil)
		unknown := newFake(t, `{"name":"x","supportedInterfaces":[{"url":"URL","protocolBinding":"GRPC","protocolVersion":"1.0"},{"url":"ftp://x","protocolBinding":"JSONRPC","protocolVersion":"1.0"},{"url":"URL","protocolBinding":"JSONRPC","protocolVersion":"2.0"}]}`, nil)
		old := newFake(t, `{"name":"x","url":"URL","preferredTransport":"HTTP+JSON","protocolVersion":"0.3.0"}`, nil)
		private := newFake(t, `{"name":"x","supportedInterfaces":[{"url":"http://10.0.0.1/","protocolBinding":"JSONRPC","protocolVersion":"1.0"}]}`, nil)
		noCard := newFake(t, `[]`, nil)
		h.AddAgent(t, "fake-1", "")
		bearer := remote.AuthDraft{Type: remote.AuthBearer, Secret: "s3cret"}
		for text, d := range map[string]remote.Draft{
			"card_url must be absolute and begin with https:// or http://":                                                          {CardURL: "agent.example"},
			"10.0.0.1 is a private address; comet connects to it only if webhooks.allow_networks permits it":                        {CardURL: "http://10.0.0.1/card"},
			"concurrency must be 1 to 1000, not 0":                                                                                  {CardURL: f.url(), Concurrency: new(0)},
			"auth.type must be none, bearer or header":                                                                              {CardURL: f.url(), Auth: remote.AuthDraft{Type: "basic"}},
			"auth of the type none has no header and no secret; set auth.type to bearer or header":                                  {CardURL: f.url(), Auth: remote.AuthDraft{Secret: "s3cret"}},
			"auth.secret must have 1 to 4096 bytes that an HTTP header may have":                                                    {CardURL: f.url(), Auth: remote.AuthDraft{Type: remote.AuthBearer, Secret: "a\nb"}},
			"auth.header is only for the type header":                                                                               {CardURL: f.url(), Auth: remote.AuthDraft{Type: remote.AuthBearer, Header: "X", Secret: "s"}},
			"auth.header must be the name of an HTTP header that comet does not set itself, such as X-API-Key, not \"Host\"":        {CardURL: f.url(), Auth: remote.AuthDraft{Type: remote.AuthHeader, Header: "host", Secret: "s"}},
			"the agent card cannot be read: the remote agent responded with 302 to \"" + f.url() + "\"; redirects are not followed": {CardURL: moved.URL},
			"the agent card cannot be read: the response of the remote agent has more than 262144 bytes":                            {CardURL: large.url()},
			"the agent card is not the JSON of a card: json: cannot unmarshal array into Go value of type client.Card":              {CardURL: noCard.url()},
			"the agent card has no interface that comet can use: the binding \"GRPC\" is not JSONRPC or HTTP+JSON; \"ftp://x\" is no http or https address; the version \"2.0\" is not 1.0 or 0.3": {CardURL: unknown.url()},
			"the agent card has no interface that comet can use: HTTP+JSON of version 0.3 is not supported":                                                                                        {CardURL: old.url()},
			"the agent card has no interface that comet can use: 10.0.0.1 is a private address; comet connects to it only if webhooks.allow_networks permits it":                                   {CardURL: private.url()},
			"the agent card has no interface that comet can use: " + f.server.URL + " is not the server of the card, " + other.server.URL + ", and would receive its secret":                       {CardURL: other.url(), Auth: bearer},
		} {
			_, _, err := h.remotes.Put(t.Context(), testkit.Admin(), "fake-1", d)
			require.Error(t, err, text)
			require.Equal(t, text, errs.From(err).Detail)
			require.True(t, errs.From(err).Code.IsInvalid() || errs.Is(err, errs.AddressRefused), text)
		}
		down := newFake(t, "", func(w http.ResponseWriter, _ *http.Request, _ call) string { return "" })
		down.server.Close()
		busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }))
		t.Cleanup(busy.Close)
		for _, address := range []string{down.url(), busy.URL} {
			_, _, err := h.remotes.Put(t.Context(), testkit.Admin(), "fake-1", remote.Draft{CardURL: address})
			require.Equal(t, errs.UpstreamFailed, errs.CodeOf(err), "%s: %v", address, err)
			require.ErrorContains(t, err, "the agent card cannot be read: the remote agent ")
		}
		_, _, err := h.remotes.Put(t.Context(), testkit.Admin(), "none", remote.Draft{CardURL: f.url()})
		require.Equal(t, errs.NotFound, errs.CodeOf(err))
		writer := models.Principal{TokenID: "w", Name: "w", Scopes: []models.Scope{models.ScopeAgentsWrite}}
		_, _, err = h.remotes.Put(t.Context(), writer, "orch-my-team", remote.Draft{CardURL: f.url()})
		require.Equal(t, errs.MissingScope, errs.CodeOf(err))
		_, _, err = h.remotes.Put(t.Context(), writer, "fake-1", remote.Draft{CardURL: other.url()})
		require.NoError(t, err, "without a secret, the interface may be on another server")

		v, first, err := h.remotes.Put(t.Context(), writer, "fake-1", remote.Draft{CardURL: f.url(), Auth: remote.AuthDraft{Type: remote.AuthHeader, Header: "x-api-key", Secret: "s3cret"}, Concurrency: new(3)})
		require.NoError(t, err)
		require.False(t, first)
		require.EqualValues(t, 2, v.Version)
		require.Equal(t, remote.CardView{Name: "Fake", Description: "d", Version: "3", Skills: []string{"cook"}, Streaming: true, Signature: "none", URL: f.server.URL + "/rpc", Binding: "JSONRPC", Protocol: "1.0"}, *v.Card)
		require.Equal(t, remote.AuthView{Type: "header", Header: "X-Api-Key"}, v.Auth)
		h.WaitForWorker(t, "fake-1", func(w models.Worker) bool { return w.State == models.WorkerOnline && w.Concurrency == 3 })
		sealed, err := store.Row[[]byte](h.DB.Reads(t.Context()), "SELECT secret FROM remote_agents")
		require.NoError(t, err)
		require.NotContains(t, string(sealed), "s3cret")
		plain, err := h.opts.Keys.Open("remote_agents.secret", sealed)
		require.NoError(t, err)
		require.Equal(t, "s3cret", string(plain))
		trail, err := store.Rows[string](h.DB.Reads(t.Context()), "SELECT changes FROM audit WHERE agent_id = 'fake-1' ORDER BY id")
		require.NoError(t, err)
		require.Len(t, trail, 2)
		require.Contains(t, trail[1], f.url())
	})
}

// TestLoop: an agent whose remote agent is comet itself passes its work to itself until the limit of hops.
func TestLoop(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		c := serve(t, h.Work)
		h.use(t, "loop-1", c.server.URL+"/.well-known/agent-card.json", c.token, "loop")
		done, _ := h.end(t, h.submit(t, "loop-1", "loop", `{"text":"go round"}`))
		require.Equal(t, models.TaskFailed, done.State)
		require.Contains(t, done.Error, "REMOTE_LOOP: the work has passed through comet over A2A 4 times, which is the limit: the card of a remote agent leads back to comet")
		total, err := store.Row[int](h.DB.Reads(t.Context()), "SELECT count(*) FROM tasks")
		require.NoError(t, err)
		require.Equal(t, 5, total)
	})
}

// TestSignatures: a wrong signature of a card refuses the connection; one without a key is reported, and verified later.
func TestSignatures(t *testing.T) {
	t.Parallel()
	onDatabases(t, func(t *testing.T, h *instance) {
		f := newFake(t, streamingCard, nil)
		other, _, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		public, private, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		keys := `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k-1","x":"` + base64.RawURLEncoding.EncodeToString(other) + `"},{"kty":"OKP","crv":"Ed25519","kid":"k-1","x":"` + base64.RawURLEncoding.EncodeToString(public) + `"}]}`
		sign := func(jku string) {
			payload := jsontext.Value(strings.ReplaceAll(streamingCard, "URL", f.server.URL))
			require.NoError(t, payload.Canonicalize())
			protected := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"EdDSA","kid":"k-1","jku":"` + jku + `"}`))
			signature := ed25519.Sign(private, []byte(protected+"."+base64.RawURLEncoding.EncodeToString(payload)))
			f.set(strings.TrimSuffix(streamingCard, "}")+`,"signatures":[{"protected":"`+protected+`","signature":"`+base64.RawURLEncoding.EncodeToString(signature)+`"}]}`, nil)
		}
		put := func() (string, error) {
			v, _, err := h.remotes.Put(t.Context(), testkit.Admin(), "fake-1", remote.Draft{CardURL: f.url(), Auth: remote.AuthDraft{Type: remote.AuthBearer, Secret: "s"}})
			if err != nil {
				return "", err
			}
			return v.Card.Signature, nil
		}
		h.AddAgent(t, "fake-1", "")
		publish := func(keys string) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.keys = keys
		}
		for _, c := range []struct{ jku, keys, want string }{
			{"", "", "none"},
			{"https://other.example/keys", keys, `unverified: jku is no address on the server of the card, "https://other.example/keys"`},
			{f.server.URL + "/keys", "", "unverified: jku has no set of keys"},
			{f.server.URL + "/keys", `{"keys":[]}`, `unverified: jku has no public key "k-1"`},
			{f.server.URL + "/keys", keys, "verified"},
		} {
			publish(c.keys)
			if c.jku != "" {
				sign(c.jku)
			}
			got, err := put()
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		}
		f.mu.Lock()
		good := f.card
		f.card = strings.Replace(good, `"Fake"`, `"Fake!"`, 1)
		f.mu.Unlock()
		_, err = put()
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.Equal(t, `the key "k-1" does not verify the signature of the agent card: the card was changed, or signed with another key`, errs.From(err).Detail)
		f.set(`{"supportedInterfaces":[{"tenant":"other"}],`+good[1:], nil)
		_, err = put()
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.Contains(t, errs.From(err).Detail, "must not repeat a member")
		f.set(strings.Replace(good, `"signature":"`, `"signature":"!`, 1), nil)
		_, err = put()
		require.Equal(t, errs.InvalidRequest, errs.CodeOf(err))
		require.Contains(t, errs.From(err).Detail, "a signature of the agent card is malformed")

		f.set(good, nil)
		publish("")
		require.NoError(t, h.remotes.Stop(t.Context()))
		h.opts.Recheck = time.Nanosecond
		begun := time.Now()
		h.opts.Clock = func() time.Time { return h.DB.Now().Add(time.Since(begun)) }
		got, err := put()
		require.NoError(t, err)
		require.Equal(t, "unverified: jku has no set of keys", got)
		h.restart(t)
		publish(keys)
		require.Eventually(t, func() bool {
			v, err := h.remotes.Get(t.Context(), "fake-1")
			return err == nil && v.Card.Signature == "verified"
		}, testkit.Timeout, 5*time.Millisecond, "the key is read again")
	})
}
