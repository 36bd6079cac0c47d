package a2a_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

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
