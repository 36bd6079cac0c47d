package app_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit/mcptest"
)

// The rules of tools are tested in internal/tools. These tests check what a client of the REST API
// and of MCP sees of them: the status, the body and the lists.

// found returns the tools that a search over REST finds.
func found(t *testing.T, c *client, query string) (ids []string) {
	t.Helper()
	list := into[struct{ Tools []struct{ Name string } }](t, c, http.StatusOK, http.MethodPost, "/api/v1/tools/search", map[string]any{"query": query, "limit": 100})
	for _, tool := range list.Tools {
		ids = append(ids, tool.Name)
	}
	return ids
}

// definition is what the REST API returns about a tool of an upstream.
type definition struct {
	Tool, State, Digest string
	PendingDigest       string `json:"pending_digest"`
}

func (c *client) definition(t *testing.T, server, tool string) (d definition) {
	t.Helper()
	list := get[struct{ Tools []definition }](t, c, "/api/v1/upstreams/"+server+"/tools")
	for _, d := range list.Tools {
		if d.Tool == tool {
			return d
		}
	}
	return d
}

// TestMCPPolicyInEveryAPI checks that the policy of a token applies to its requests over MCP and over
// REST, and the requests that set it.
func TestMCPPolicyInEveryAPI(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper := mcptest.NewPaper(t, "paper")
		h := openHub(t, database, func(cfg *config.Config) { cfg.Tools.Expose = "all" }, paper)
		who := h.holder(t, "", "tools:call", "messages:send", "tasks:read")
		s := who.speak(t, sessions, nil)
		h.policy(t, who, `{"deny":[{"tool":"paper:shred"},{"tool":"paper:echo","arguments":{"path":"/etc*"}}]}`)
		before := paper.Calls()
		names, _ := listed(t, s)
		require.Contains(t, names, "paper__note")
		require.NotContains(t, names, "paper__shred")
		require.Equal(t, []string{"paper:echo", "paper:note"}, who.tools(t, "paper"))
		require.NotContains(t, found(t, who.client, "says shredded"), "paper:shred")
		require.Contains(t, found(t, h.client, "says shredded"), "paper:shred")
		requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper:shred", nil))
		requireFailed(t, "PERMISSION_DENIED", called(t, s, "paper:echo", map[string]any{"path": "/etc"}))
		require.Equal(t, "TOOL_NOT_FOUND", who.restCall(t, http.StatusNotFound, "paper:shred", nil)["tool_error"])
		require.Equal(t, "PERMISSION_DENIED", who.restCall(t, http.StatusForbidden, "paper:echo", map[string]any{"path": "/etc"})["tool_error"])
		h.offers(t, "mcp-paper", 3)
		task := who.submits(t, "custom:paper:shred", nil)
		require.Equal(t, "failed", task.State, "%+v", task)
		require.Equal(t, before, paper.Calls(), "no call was forwarded")

		path := "/api/v1/tokens/" + who.id + "/tool-policy"
		h.must(t, http.StatusNoContent, http.MethodDelete, path, nil)
		h.must(t, http.StatusOK, http.MethodGet, path, nil)
		h.must(t, http.StatusNotFound, http.MethodPut, "/api/v1/tokens/unknown/tool-policy", map[string]any{})
		mcptest.RequireSays(t, "shredded", called(t, s, "paper:shred", nil))
	})
}

// TestRESTApproval checks the requests that approve and classify tools.
func TestRESTApproval(t *testing.T) {
	t.Parallel()
	paper := mcptest.New(t, "paper").Echo().Says("note", "first", nil)
	h := openHub(t, "sqlite", nil, paper)
	paper.Says("note", "second", nil)
	var d definition
	eventually(t, func() bool { d = h.definition(t, "paper", "note"); return d.State == "quarantined" }, "the tool is quarantined")
	approve := func(status int, tool, digest string) {
		t.Helper()
		h.must(t, status, http.MethodPost, "/api/v1/upstreams/paper/tools/approve", map[string]any{"tool": tool, "digest": digest})
	}
	approve(http.StatusPreconditionFailed, "note", d.Digest)
	approve(http.StatusNotFound, "nothing", "")
	approve(http.StatusOK, "note", d.PendingDigest)
	require.Equal(t, d.PendingDigest, h.definition(t, "paper", "note").Digest)

	who := h.holder(t, "")
	h.policy(t, who, `{"classes":["read"]}`)
	for i, class := range []any{"read", nil} {
		h.must(t, http.StatusOK, http.MethodPost, "/api/v1/upstreams/paper/tools/classify", map[string]any{"tool": "note", "class": class})
		eventually(t, func() bool { return len(who.tools(t, "paper")) == 2-i }, "the class of the tool changes")
	}
}

// TestRESTToolErrors checks the status and the problem of calls over REST that fail.
func TestRESTToolErrors(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil, mcptest.NewPaper(t, "paper"))
	h.agent(t, "poor", 1000)
	poor := h.holder(t, "poor")
	long := map[string]any{"n": strings.Repeat("many words, ", 1000)}
	p := poor.restCall(t, http.StatusForbidden, "paper:echo", long)
	require.Equal(t, "BUDGET_EXCEEDED", p["tool_error"])
	require.Equal(t, "budget-exceeded", p["code"])
	require.Contains(t, p, "reset_at")

	p = h.restCall(t, http.StatusUnprocessableEntity, "agentcards:execute_code", map[string]any{"code": "return ("})
	require.Equal(t, "SANDBOX_SYNTAX", p["tool_error"])

	h.must(t, http.StatusCreated, http.MethodPut, "/api/v1/upstreams/gone", map[string]any{"url": "http://127.0.0.1:1/mcp"})
	eventually(t, func() bool {
		return get[struct{ Error string }](t, h.client, "/api/v1/upstreams/gone").Error != ""
	}, "the reason is reported")
	p = h.restCall(t, http.StatusBadGateway, "gone:anything", nil)
	require.Equal(t, "MCP_SERVER_ERROR", p["tool_error"])
}

// TestMCPToolPages checks that over REST a cursor returns the next page, and that the cursor of
// another token is rejected.
func TestMCPToolPages(t *testing.T) {
	t.Parallel()
	h := openHub(t, "sqlite", nil, mcptest.NewPaper(t, "paper"))
	all, got := h.tools(t, ""), []string{}
	for path := "/api/v1/tools?limit=2"; path != ""; {
		page := get[struct {
			Tools      []struct{ ID string }
			NextCursor string `json:"next_cursor"`
		}](t, h.client, path)
		for _, tool := range page.Tools {
			got = append(got, tool.ID)
		}
		if path = ""; page.NextCursor != "" {
			path = "/api/v1/tools?limit=2&cursor=" + page.NextCursor
		}
	}
	require.Greater(t, len(all), 4)
	require.Equal(t, all, got)
	for _, cursor := range []string{"zzz", "bm9uc2Vuc2U", "%20", "~"} {
		require.Contains(t, string(h.must(t, http.StatusBadRequest, http.MethodGet, "/api/v1/tools?cursor="+cursor, nil)), "cursor", cursor)
	}
}

// TestMCPListPages checks the pages of tools/list: a page has 200 tools, and the pages together have
// all in the same order as before.
func TestMCPListPages(t *testing.T) {
	t.Parallel()
	big := mcptest.New(t, "big")
	var want []string
	for n := range 450 {
		name := fmt.Sprintf("t%03d", n)
		big.Says(name, name, nil)
		want = append(want, "big:"+name)
	}
	h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.Tools.Expose, cfg.Tools.Names = "all", "documented" }, big)
	s := h.speak(t, newest, nil)
	first, err := s.ListTools(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, first.Tools, 200)
	require.NotEmpty(t, first.NextCursor)
	names, _ := listed(t, s)
	require.Equal(t, []string{"agentcards:search_tools", "agentcards:execute_code", "agentcards:execute_dag", "agentcards:continue", "agentcards:abort", "agentcards:replan", "agentcards:approval_response", "comet:submit_task", "comet:task_status", "comet:reply_task", "comet:cancel_task"}, names[:11])
	require.Equal(t, want, names[11:])
	again, _ := listed(t, s)
	require.Equal(t, names, again)
}
