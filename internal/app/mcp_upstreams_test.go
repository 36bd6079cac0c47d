package app_test

import (
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit/mcptest"
)

// put sends the definition of an upstream, requires the status, and returns the body.
func (c *client) put(t *testing.T, status int, id string, entry map[string]any) string {
	t.Helper()
	return string(c.must(t, status, http.MethodPut, "/api/v1/upstreams/"+id, entry))
}

// TestRESTUpstreams checks the status and the body of requests about upstreams. What they do is
// tested in internal/tools.
func TestRESTUpstreams(t *testing.T) {
	t.Parallel()
	paper, ink := mcptest.NewPaper(t, "paper"), mcptest.New(t, "ink").Echo()
	h := openHub(t, "sqlite", nil, paper)
	of := func(url string) map[string]any { return map[string]any{"url": url} }

	t.Run("AddChangeAndRemove", func(t *testing.T) {
		h.put(t, http.StatusCreated, "ink", of(ink.URL))
		h.awaitTools(t, "ink")
		h.put(t, http.StatusOK, "ink", of(ink.URL))
		h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/upstreams/ink", nil)
		h.must(t, http.StatusNotFound, http.MethodDelete, "/api/v1/upstreams/ink", nil)
		h.must(t, http.StatusNotFound, http.MethodGet, "/api/v1/upstreams/ink", nil)
	})

	t.Run("AnInvalidDefinitionIsRejectedWithoutItsSecret", func(t *testing.T) {
		secret := map[string]any{"url": ink.URL, "headers": map[string]string{"Authorization": "Bearer s3cret"}}
		body := h.put(t, http.StatusBadRequest, "ink", secret)
		require.Contains(t, body, "${AUTHORIZATION}")
		require.NotContains(t, body, "s3cret")
		require.Contains(t, h.put(t, http.StatusBadRequest, "agentcards", of(ink.URL)), "comet's own")
		require.Contains(t, h.put(t, http.StatusBadRequest, "in_k", of(ink.URL)), "in_k")
		require.Contains(t, h.put(t, http.StatusConflict, "paper", of(ink.URL)), "servers.json")
	})

	t.Run("OnlyAnAdminChangesUpstreams", func(t *testing.T) {
		who := h.holder(t, "")
		who.put(t, http.StatusForbidden, "ink", of(ink.URL))
		require.Equal(t, http.StatusOK, who.status(t, "/api/v1/upstreams/paper"), "every token sees its state")
	})

	t.Run("Reload", func(t *testing.T) {
		reload := func(status int) string {
			t.Helper()
			return string(h.must(t, status, http.MethodPost, "/api/v1/upstreams/reload", nil))
		}
		require.NoError(t, os.WriteFile(h.cfg.MCP.Servers, []byte(`{"mcpServers":`), 0o600))
		reload(http.StatusBadRequest)
		h.put(t, http.StatusCreated, "ink", of(ink.URL))
		mcptest.WriteServers(t, h.cfg.MCP.Servers, paper, ink)
		require.Contains(t, reload(http.StatusConflict), "ink")
		h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/upstreams/ink", nil)
		reload(http.StatusNoContent)
		h.awaitTools(t, "ink")
	})
}

// TestMCPUpstreamSettings checks the settings of the server that concern upstreams.
func TestMCPUpstreamSettings(t *testing.T) {
	t.Parallel()
	t.Run("AddingProgramsOverTheAPICanBeDisabled", func(t *testing.T) {
		t.Parallel()
		h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.MCP.AddCommands = false })
		require.Contains(t, h.put(t, http.StatusBadRequest, "ink", map[string]any{"command": "true"}), "mcp.add_commands")
	})

	t.Run("AServerWhoseFileHasAMistakeDoesNotStart", func(t *testing.T) {
		t.Parallel()
		cfg := configured(t, "sqlite")
		cfg.MCP.Servers = filepath.Join(cfg.Data, "servers.json")
		require.NoError(t, os.WriteFile(cfg.MCP.Servers, []byte(`{"mcpServers":[]}`), 0o600))
		requireNoStart(t, cfg, "mcpServers")
	})
}
