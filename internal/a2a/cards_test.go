package a2a_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/models"
)

// card is an agent card.
type card struct {
	Name                string
	Version             string
	URL                 string
	ProtocolVersion     string
	SupportedInterfaces []struct{ URL, ProtocolBinding, ProtocolVersion, Tenant string }
	Capabilities        map[string]any
	Skills              []struct{ ID string }
}

func (c card) skills() (ids []string) {
	for _, s := range c.Skills {
		ids = append(ids, s.ID)
	}
	return ids
}

// requireSigned verifies the signature of a card with an independent implementation of JWS and returns the key's id.
func (h *harness) requireSigned(t *testing.T, body []byte) string {
	t.Helper()
	members := map[string]json.RawMessage{}
	require.NoError(t, json.Unmarshal(body, &members))
	var signatures []struct{ Protected, Signature string }
	require.NoError(t, json.Unmarshal(members["signatures"], &signatures))
	require.Len(t, signatures, 1)
	delete(members, "signatures")
	unsigned, err := json.Marshal(members)
	require.NoError(t, err)
	payload := jsontext.Value(unsigned)
	require.NoError(t, payload.Canonicalize())
	jws, err := jose.ParseDetached(signatures[0].Protected+".."+signatures[0].Signature, payload, []jose.SignatureAlgorithm{jose.EdDSA})
	require.NoError(t, err)
	header := jws.Signatures[0].Protected
	keys, err := h.keys.Public(t.Context())
	require.NoError(t, err)
	i := slices.IndexFunc(keys, func(k auth.ServiceKey) bool { return k.ID == header.KeyID })
	require.GreaterOrEqual(t, i, 0)
	require.NoError(t, jws.DetachedVerify(payload, keys[i].Public))
	require.Error(t, jws.DetachedVerify(append(payload.Clone(), ' '), keys[i].Public))
	require.Equal(t, map[jose.HeaderKey]any{"typ": "JOSE", "jku": h.server.URL + "/.well-known/jwks.json"}, header.ExtraHeaders)
	return header.KeyID
}

// TestSignedCards (A2A 1.0 §8.4): every card is signed with the current key.
func TestSignedCards(t *testing.T) {
	t.Parallel()
	onDatabases(t, "in both versions", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("<done> & ü"), "say")
		cards := func() (ids []string, tags []string) {
			for _, path := range []string{"/.well-known/agent-card.json", "/.well-known/agent.json", "/a2a/agents/say-1/agent-card.json", "/a2a/rest/extendedAgentCard", "/a2a/rest/say-1/extendedAgentCard"} {
				resp := h.Do(t, http.MethodGet, path, "", "A2A-Version", "1.0")
				require.Equal(t, http.StatusOK, resp.Status)
				ids, tags = append(ids, h.requireSigned(t, resp.Body)), append(tags, resp.Header.Get("ETag"))
			}
			var text json.RawMessage
			require.Nil(t, rpc(t, h.Client, "GetExtendedAgentCard", `{}`, &text))
			return append(ids, h.requireSigned(t, text)), tags
		}
		first, tags := cards()
		again, sameTags := cards()
		require.Equal(t, tags, sameTags, "the signature of a card stays the same")
		require.Equal(t, first, again)
		require.Len(t, slices.Compact(first), 1)
		key, err := h.keys.Rotate(t.Context(), models.System())
		require.NoError(t, err)
		next, otherTags := cards()
		require.Equal(t, []string{key.ID}, slices.Compact(next))
		require.NotEqual(t, tags[0], otherTags[0])
	})
	onDatabases(t, "version 0.3 over JSON-RPC", func(t *testing.T, h *harness) {
		var out struct{ Result json.RawMessage }
		h.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard"}`).Decode(t, http.StatusOK, &out)
		h.requireSigned(t, out.Result)
		require.Contains(t, string(out.Result), `"protocolVersion":"0.3.0"`)
	})
}

// TestCards: the public card says how to log in, and the others what the caller may use.
func TestCards(t *testing.T) {
	t.Parallel()
	onDatabases(t, "public", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("done"), "say_secret")
		resp := h.Do(t, http.MethodGet, "/.well-known/agent-card.json", "", "Authorization", "", "Host", "comet.example.com")
		var c card
		resp.Decode(t, http.StatusOK, &c)
		require.Equal(t, []string{"tasks"}, c.skills())
		require.NotContains(t, resp.String(), "secret")
		require.Equal(t, "1.2.3", c.Version)
		require.Equal(t, []struct{ URL, ProtocolBinding, ProtocolVersion, Tenant string }{
			{"http://comet.example.com/a2a", "JSONRPC", "1.0", ""}, {"http://comet.example.com/a2a/rest", "HTTP+JSON", "1.0", ""}, {"http://comet.example.com/a2a", "JSONRPC", "0.3", ""},
		}, c.SupportedInterfaces)
		require.Equal(t, map[string]any{"streaming": true, "extendedAgentCard": true, "pushNotifications": true}, c.Capabilities)
		require.Contains(t, resp.Header.Get("Cache-Control"), "max-age")
		require.NotEmpty(t, resp.Header.Get("Last-Modified"))
		again := h.Do(t, http.MethodGet, "/.well-known/agent-card.json", "", "Authorization", "", "Host", "comet.example.com", "If-None-Match", `"x", `+resp.Header.Get("ETag"))
		require.Equal(t, http.StatusNotModified, again.Status)
		require.Empty(t, again.Body)
		require.Equal(t, http.StatusMethodNotAllowed, h.Do(t, http.MethodPost, "/.well-known/agent-card.json", "{}").Status)
	})
	onDatabases(t, "version 0.3", func(t *testing.T, h *harness) {
		for path, header := range map[string]string{"/.well-known/agent.json": "", "/.well-known/agent-card.json": "0.3", "/.well-known/agent-card.json?A2A-Version=0.3": ""} {
			var c card
			h.Do(t, http.MethodGet, path, "", "Authorization", "", "A2A-Version", header).Decode(t, http.StatusOK, &c)
			require.Equal(t, []string{"0.3.0", h.server.URL + "/a2a"}, []string{c.ProtocolVersion, c.URL})
		}
	})
	onDatabases(t, "extended and of agents", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("done"), "say")
		h.worker(t, "ask-1", h.returns("done"), "ask")
		var c card
		require.Nil(t, rpc(t, h.Client, "GetExtendedAgentCard", `{}`, &c))
		require.Subset(t, c.skills(), []string{"say", "ask"})
		h.Do(t, http.MethodGet, "/a2a/rest/extendedAgentCard", "", "A2A-Version", "1.0").Decode(t, http.StatusOK, &c)
		require.Subset(t, c.skills(), []string{"say", "ask"})
		h.Do(t, http.MethodGet, "/a2a/rest/say-1/extendedAgentCard", "", "A2A-Version", "1.0").Decode(t, http.StatusOK, &c)
		require.Equal(t, []string{"say"}, c.skills())
		h.Do(t, http.MethodGet, "/a2a/agents/say-1/agent-card.json", "").Decode(t, http.StatusOK, &c)
		require.Equal(t, []string{"say"}, c.skills())
		require.Equal(t, "say-1", c.SupportedInterfaces[0].Tenant)
		require.Equal(t, http.StatusNotFound, h.Do(t, http.MethodGet, "/a2a/agents/none/agent-card.json", "").Status)
		require.Equal(t, http.StatusNotFound, h.Do(t, http.MethodGet, "/a2a/agents/say-1", "").Status)
		bound := h.client(t, "say-1", models.ScopeMessagesSend)
		require.Equal(t, http.StatusOK, bound.Do(t, http.MethodGet, "/a2a/agents/say-1/agent-card.json", "").Status)
		require.Equal(t, http.StatusNotFound, bound.Do(t, http.MethodGet, "/a2a/agents/ask-1/agent-card.json", "").Status, "it is not in the subtree of the token")
		reader := h.client(t, "", models.ScopeTasksRead)
		require.Equal(t, http.StatusForbidden, reader.Do(t, http.MethodGet, "/a2a/agents/say-1/agent-card.json", "").Status)
	})
}
