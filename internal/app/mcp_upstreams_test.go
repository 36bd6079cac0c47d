package app_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit/mcptest"
	"comet/store/storetest"
)

// add puts an upstream and returns the status of the response.
func (c *client) add(t *testing.T, id string, entry map[string]any) (status int, answer string) {
	t.Helper()
	status, body, err := c.do(t.Context(), http.MethodPut, "/api/v1/upstreams/"+id, entry)
	require.NoError(t, err)
	return status, string(body)
}

// state returns the state of an upstream, "" if it does not exist.
func (c *client) state(t *testing.T, id string) (state, why string) {
	t.Helper()
	if c.status(t, "/api/v1/upstreams/"+id) == http.StatusNotFound {
		return "", ""
	}
	s := get[struct{ State, Error string }](t, c, "/api/v1/upstreams/"+id)
	return s.State, s.Error
}

func TestMCPUpstreams(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper, ink, other := mcptest.NewPaper(t, "paper"), mcptest.New(t, "ink").Echo(), mcptest.New(t, "ink").Says("blot", "blotted", nil)
		h := openHub(t, database, nil, paper)
		s := h.speak(t, newest, nil)

		t.Run("TheAPIAddsChangesAndRemovesAnUpstream", func(t *testing.T) {
			status, body := h.add(t, "ink", map[string]any{"url": ink.URL})
			require.Equal(t, http.StatusCreated, status, body)
			h.awaitTools(t, "ink")
			mcptest.RequireSays(t, "{}", called(t, s, "ink:echo", nil))
			status, body = h.add(t, "ink", map[string]any{"url": other.URL})
			require.Equal(t, http.StatusOK, status, body)
			eventually(t, func() bool { ids := h.tools(t, "ink"); return len(ids) == 1 && ids[0] == "ink:blot" }, "its tools are those of the other")
			mcptest.RequireSays(t, "blotted", called(t, s, "ink:blot", nil))
			h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/upstreams/ink", nil)
			eventually(t, func() bool { return len(h.tools(t, "ink")) == 0 }, "its tools go with it")
			requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "ink:blot", nil))
			h.must(t, http.StatusNotFound, http.MethodDelete, "/api/v1/upstreams/ink", nil)
		})

		for rule, c := range map[string]struct {
			id     string
			entry  map[string]any
			status int
			says   string
		}{
			"ASecretInAHeaderIsRefused":     {"ink", map[string]any{"url": ink.URL, "headers": map[string]string{"Authorization": "Bearer s3cret"}}, http.StatusBadRequest, "${AUTHORIZATION}"},
			"ASecretInTheEnvironmentIs":     {"ink", map[string]any{"command": "true", "env": map[string]string{"GITHUB_TOKEN": "s3cret"}}, http.StatusBadRequest, "${GITHUB_TOKEN}"},
			"ABearerInClearIs":              {"ink", map[string]any{"url": ink.URL, "comet": map[string]any{"bearer": "s3cret"}}, http.StatusBadRequest, "${BEARER_TOKEN}"},
			"AnIdOfCometsOwnIs":             {"agentcards", map[string]any{"url": ink.URL}, http.StatusBadRequest, "comet's own"},
			"TheOtherIdOfCometsOwnIs":       {"comet", map[string]any{"url": ink.URL}, http.StatusBadRequest, "comet's own"},
			"AnIdOfTheFileIsAConflict":      {"paper", map[string]any{"url": ink.URL}, http.StatusConflict, "servers.json"},
			"AnEntryWithoutCommandAndURLIs": {"ink", map[string]any{}, http.StatusBadRequest, "command"},
			"AnIdWithOtherCharactersIs":     {"in_k", map[string]any{"url": ink.URL}, http.StatusBadRequest, "in_k"},
			"AnAddressThatIsNoneIs":         {"ink", map[string]any{"url": "ftp://127.0.0.1/"}, http.StatusBadRequest, "url"},
			"AnEntryWithAnUnknownMemberIs":  {"ink", map[string]any{"url": ink.URL, "comet": map[string]any{"colour": "red"}}, http.StatusBadRequest, "colour"},
		} {
			t.Run(rule, func(t *testing.T) {
				status, body := h.add(t, c.id, c.entry)
				require.Equal(t, c.status, status, body)
				require.Contains(t, body, c.says)
				require.NotContains(t, body, "s3cret")
				if c.id == "ink" {
					h.must(t, http.StatusNotFound, http.MethodGet, "/api/v1/upstreams/ink", nil)
				}
			})
		}

		t.Run("OnlyAnAdminChangesUpstreams", func(t *testing.T) {
			who := h.holder(t, "")
			status, body := who.add(t, "ink", map[string]any{"url": ink.URL})
			require.Equal(t, http.StatusForbidden, status, body)
			require.Equal(t, http.StatusOK, who.status(t, "/api/v1/upstreams/paper"), "and every token sees its state")
		})

		t.Run("AnUpstreamThatIsDownHidesOnlyItsToolsAndShowsTheReason", func(t *testing.T) {
			gone := httptest.NewServer(http.NotFoundHandler())
			url := gone.URL
			gone.Close()
			status, body := h.add(t, "gone", map[string]any{"url": url})
			require.Equal(t, http.StatusCreated, status, body)
			eventually(t, func() bool { state, why := h.state(t, "gone"); return state != "ready" && why != "" }, "it is seen to be down")
			_, why := h.state(t, "gone")
			text := requireFailed(t, "MCP_SERVER_ERROR", called(t, s, "gone:anything", nil))
			require.Contains(t, text, `"gone"`)
			require.NotEmpty(t, why)
			requireFailed(t, "MCP_SERVER_ERROR", called(t, s, "gone__anything", nil))
			p := h.restCall(t, http.StatusBadGateway, "gone:anything", nil)
			require.Equal(t, "MCP_SERVER_ERROR", p["tool_error"])
			mcptest.RequireSays(t, "noted", called(t, s, "paper:note", nil))
			h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/upstreams/gone", nil)
		})

		t.Run("AFileWithAMistakeChangesNothing", func(t *testing.T) {
			for _, text := range []string{`{"mcpServers":`, `{"mcpServers":{"paper":{}}}`, `{"mcpServers":{"comet":{"url":"` + ink.URL + `"}}}`} {
				require.NoError(t, os.WriteFile(h.cfg.MCP.Servers, []byte(text), 0o600))
				h.must(t, http.StatusBadRequest, http.MethodPost, "/api/v1/upstreams/reload", nil)
				mcptest.RequireSays(t, "noted", called(t, s, "paper:note", nil))
			}
			mcptest.WriteServers(t, h.cfg.MCP.Servers, ink)
			h.must(t, http.StatusNoContent, http.MethodPost, "/api/v1/upstreams/reload", nil)
			h.awaitTools(t, "ink")
			eventually(t, func() bool { return len(h.tools(t, "paper")) == 0 }, "what it no longer names goes")
		})

		t.Run("AFileWithTheIdOfAnAddedUpstreamChangesNothing", func(t *testing.T) {
			status, body := h.add(t, "added", map[string]any{"url": ink.URL})
			require.Equal(t, http.StatusCreated, status, body)
			added := mcptest.New(t, "added").Echo()
			mcptest.WriteServers(t, h.cfg.MCP.Servers, paper, added)
			require.Contains(t, string(h.must(t, http.StatusConflict, http.MethodPost, "/api/v1/upstreams/reload", nil)), "added")
			require.NotEmpty(t, h.tools(t, "ink"), "what the file no longer names stays")
			h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/upstreams/added", nil)
		})

		t.Run("AChangeOfTheFileIsAppliedAutomatically", func(t *testing.T) {
			mcptest.WriteServers(t, h.cfg.MCP.Servers, paper, ink)
			h.awaitTools(t, "paper")
		})
	})

	t.Run("AddingProgramsOverTheAPICanBeDisabled", func(t *testing.T) {
		t.Parallel()
		h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.MCP.AddCommands = false })
		status, body := h.add(t, "ink", map[string]any{"command": "true"})
		require.Equal(t, http.StatusBadRequest, status, body)
		require.Contains(t, body, "mcp.add_commands")
	})

	t.Run("AServerWhoseFileHasAMistakeDoesNotStart", func(t *testing.T) {
		t.Parallel()
		cfg := configured(t, "sqlite")
		cfg.MCP.Servers = filepath.Join(cfg.Data, "servers.json")
		require.NoError(t, os.WriteFile(cfg.MCP.Servers, []byte(`{"mcpServers":[]}`), 0o600))
		requireNoStart(t, cfg, "mcpServers")
	})
}

// TestMCPReplicas checks that two servers on one database have the same upstreams, policies and
// budgets.
func TestMCPReplicas(t *testing.T) {
	t.Parallel()
	for _, database := range storetest.Databases() {
		if database == "postgres" {
			gatewayReplicas(t)
		}
	}
}

func gatewayReplicas(t *testing.T) {
	t.Helper()
	url := storetest.EmptyPostgres(t)
	const admin = "0123456789abcdef0123456789abcdef"
	var both []*hub
	for range 2 {
		cfg := configured(t, "sqlite")
		cfg.DatabaseURL, cfg.AdminToken, cfg.Sandbox.Warm = url, admin, 0
		a := started(t, cfg)
		t.Cleanup(func() { require.NoError(t, a.Stop(context.WithoutCancel(t.Context()))) })
		both = append(both, &hub{client: newClient(t, a.URL(), admin), app: a, cfg: cfg})
	}
	one, two := both[0], both[1]
	paper := mcptest.NewPaper(t, "paper").Says("essay", "a short essay about nothing at all", mcptest.Reads())

	status, body := one.add(t, "paper", map[string]any{"url": paper.URL})
	require.Equal(t, http.StatusCreated, status, body)
	for _, h := range both {
		h.awaitTools(t, "paper")
		mcptest.RequireSays(t, "noted", called(t, h.speak(t, newest, nil), "paper:note", nil))
	}

	one.agent(t, "crowd", 10_000)
	who := one.holder(t, "crowd")
	there := newClient(t, two.URL, who.Token)
	one.policy(t, who, `{"deny":[{"tool":"paper:shred"}]}`)
	eventually(t, func() bool { return len(there.tools(t, "paper")) == 3 }, "the policy counts on the other one, too")

	var refused atomic.Int64
	var all sync.WaitGroup
	for n := range 16 {
		s := []*client{who.client, there}[n%2].speak(t, newest, nil)
		all.Go(func() {
			for refused.Load() < 16 {
				res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "paper:essay"})
				if err != nil {
					return
				}
				if res.IsError {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	there.calls(t, "?limit=1") // each writes what it still holds
	trail, most := who.calls(t, "?limit=1000"), int64(0)
	for _, l := range trail {
		most = max(most, l.Tokens)
	}
	require.Equal(t, spent(trail), one.used(t, "crowd"))
	require.LessOrEqual(t, spent(trail), 10_000+16*most)
	require.GreaterOrEqual(t, refused.Load(), int64(16))

	require.NoError(t, one.app.Stop(t.Context()))
	mcptest.RequireSays(t, "noted", called(t, two.speak(t, newest, nil), "paper:note", nil))
	two.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/upstreams/paper", nil)
	eventually(t, func() bool { return len(two.tools(t, "paper")) == 0 }, "it goes")
}
