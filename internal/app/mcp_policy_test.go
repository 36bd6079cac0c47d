package app_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/internal/testkit/mcptest"
)

// found returns the tools that a search finds.
func found(t *testing.T, c *client, query string) (ids []string) {
	t.Helper()
	list := into[struct{ Tools []struct{ Name string } }](t, c, http.StatusOK, http.MethodPost, "/api/v1/tools/search", map[string]any{"query": query, "limit": 100})
	for _, tool := range list.Tools {
		ids = append(ids, tool.Name)
	}
	return ids
}

// run returns the response to code that is run over MCP.
func run(t *testing.T, s *mcp.ClientSession, code string, more map[string]any) *mcp.CallToolResult {
	t.Helper()
	args := map[string]any{"code": code}
	for name, value := range more {
		args[name] = value
	}
	return called(t, s, "agentcards:execute_code", args)
}

// result returns the return value of the code.
func result(t *testing.T, res *mcp.CallToolResult) any {
	t.Helper()
	var out struct{ Result any }
	require.False(t, res.IsError, mcptest.TextOf(t, res))
	require.NoError(t, json.Unmarshal([]byte(mcptest.TextOf(t, res)), &out))
	return out.Result
}

func TestMCPPolicy(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper, ink := mcptest.NewPaper(t, "paper"), mcptest.NewPaper(t, "ink")
		h := openHub(t, database, func(cfg *config.Config) { cfg.Tools.Expose = "all" }, paper, ink)

		t.Run("ADeniedToolIsHiddenInEveryAPI", func(t *testing.T) {
			who := h.holder(t, "", "tools:call", "messages:send", "tasks:read")
			s := who.speak(t, newest, nil)
			mcptest.RequireSays(t, "shredded", called(t, s, "paper:shred", nil))
			h.policy(t, who, `{"deny":[{"tool":"paper:shred"},{"tool":"ink"},{"tool":"comet:submit_*"}]}`)
			before := paper.Calls() + ink.Calls()

			names, descriptions := listed(t, s)
			require.Contains(t, names, "paper__note")
			require.NotContains(t, names, "paper__shred")
			require.NotContains(t, names, "comet__submit_task")
			require.NotContains(t, names, "ink__echo")
			require.NotEmpty(t, descriptions)
			require.Equal(t, []string{"paper:echo", "paper:note"}, who.tools(t, "paper"))
			require.Empty(t, who.tools(t, "ink"))
			require.NotContains(t, found(t, who.client, "says shredded"), "paper:shred")
			require.Contains(t, found(t, h.client, "says shredded"), "paper:shred")

			unknown := requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper:nothing", nil))
			denied := requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper:shred", nil))
			require.Equal(t, unknown, strings.ReplaceAll(denied, "shred", "nothing"), "it is answered as one that does not exist")
			requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper__shred", nil))
			requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "ink:echo", nil))
			p := who.restCall(t, http.StatusNotFound, "paper:shred", nil)
			require.Equal(t, "TOOL_NOT_FOUND", p["tool_error"])
			require.Equal(t, "no such function", result(t, run(t, s, `try { await paper.shred({}); return "called" } catch (e) { return "no such function" }`, nil)))
			task := who.submits(t, "custom:paper:shred", nil)
			require.Equal(t, "failed", task.State, "%+v", task)
			require.Equal(t, before, paper.Calls()+ink.Calls(), "nothing was forwarded")
		})

		t.Run("RulesMayDependOnArguments", func(t *testing.T) {
			who := h.holder(t, "")
			s := who.speak(t, newest, nil)
			h.policy(t, who, `{"allow":[{"tool":"paper:*","arguments":{"path":"/srv/*"}}],"deny":[{"tool":"paper:echo","arguments":{"path":"/srv/secret*"}}]}`)
			require.Equal(t, []string{"agentcards:search_tools", "agentcards:execute_code", "paper:echo", "paper:note", "paper:shred"}, who.tools(t, ""),
				"a tool that the policy allows is available to all")
			mcptest.RequireSays(t, `{"path":"/srv/a"}`, called(t, s, "paper:echo", map[string]any{"path": "/srv/a"}))
			for _, path := range []string{"/srv/secrets", "/srv/./secret", "/etc/passwd", "/srv/../etc/passwd"} {
				requireFailed(t, "PERMISSION_DENIED", called(t, s, "paper:echo", map[string]any{"path": path}))
			}
			requireFailed(t, "PERMISSION_DENIED", called(t, s, "paper:echo", nil))
			p := who.restCall(t, http.StatusForbidden, "paper:echo", map[string]any{"path": "/etc"})
			require.Equal(t, "PERMISSION_DENIED", p["tool_error"])
		})

		t.Run("RulesMayDependOnClasses", func(t *testing.T) {
			who := h.holder(t, "")
			for classes, want := range map[string][]string{
				`["read"]`: {"ink:echo"}, `["write"]`: {"ink:note"}, `["destructive"]`: {"ink:shred"}, `["read","write"]`: {"ink:echo", "ink:note"},
			} {
				h.policy(t, who, `{"classes":`+classes+`}`)
				require.Equal(t, want, who.tools(t, "ink"), classes)
			}
			h.policy(t, who, `{"classes":["read"]}`)
			h.must(t, http.StatusOK, http.MethodPost, "/api/v1/upstreams/ink/tools/classify", map[string]any{"tool": "shred", "class": "read"})
			eventually(t, func() bool { return len(who.tools(t, "ink")) == 2 }, "it reads now")
			h.must(t, http.StatusOK, http.MethodPost, "/api/v1/upstreams/ink/tools/classify", map[string]any{"tool": "shred", "class": nil})
			eventually(t, func() bool { return len(who.tools(t, "ink")) == 1 }, "its annotations are believed again")
		})

		t.Run("AChangeAppliesAtOnce", func(t *testing.T) {
			who := h.holder(t, "")
			s := who.speak(t, sessions, nil)
			for range 3 {
				mcptest.RequireSays(t, "noted", called(t, s, "paper:note", nil))
				h.policy(t, who, `{"deny":[{"tool":"*"}]}`)
				requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper:note", nil))
				names, _ := listed(t, s)
				require.Empty(t, names)
				h.must(t, http.StatusNoContent, http.MethodDelete, "/api/v1/tokens/"+who.id+"/tool-policy", nil)
			}
			h.must(t, http.StatusNotFound, http.MethodGet, "/api/v1/tokens/"+who.id+"/tool-policy", nil)
			h.must(t, http.StatusNotFound, http.MethodPut, "/api/v1/tokens/unknown/tool-policy", map[string]any{})
		})
	})
}

// definition is what is known about a tool.
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

func TestMCPQuarantine(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper := mcptest.New(t, "paper").Echo().Says("note", "first", nil)
		h := openHub(t, database, nil, paper)
		s := h.speak(t, newest, nil)
		says := func(text string) { paper.Says("note", text, nil) } // its description changes with it
		state := func(want string) (d definition) {
			t.Helper()
			eventually(t, func() bool {
				d = h.definition(t, "paper", "note")
				return d.State == want
			}, "the tool is "+want)
			return d
		}
		seen := func(want bool) {
			t.Helper()
			eventually(t, func() bool { return (len(h.tools(t, "paper")) == 2) == want }, "the tool is seen, or not")
		}
		refused := func() {
			t.Helper()
			before := paper.Calls()
			text := requireFailed(t, "TOOL_NOT_FOUND", called(t, s, "paper:note", nil))
			require.Contains(t, text, "see comet upstreams tools paper")
			require.NotContains(t, text, "approve paper", "who calls is not who approves")
			require.NotContains(t, found(t, h.client, "note says"), "paper:note")
			require.Equal(t, before, paper.Calls())
		}
		approve := func(status int, digest string) {
			t.Helper()
			h.must(t, status, http.MethodPost, "/api/v1/upstreams/paper/tools/approve", map[string]any{"tool": "note", "digest": digest})
		}
		mcptest.RequireSays(t, "first", called(t, s, "paper:note", nil))
		approved := state("approved")

		says("second")
		second := state("quarantined")
		require.Equal(t, approved.Digest, second.Digest)
		seen(false)
		refused()
		mcptest.RequireSays(t, "{}", called(t, s, "paper:echo", nil)) // the others go on

		says("third") // while the second is under review
		eventually(t, func() bool { return h.definition(t, "paper", "note").PendingDigest != second.PendingDigest }, "it has changed again")
		approve(http.StatusPreconditionFailed, second.PendingDigest)
		refused()
		third := state("quarantined")
		approve(http.StatusOK, third.PendingDigest)
		require.Equal(t, third.PendingDigest, state("approved").Digest)
		seen(true)
		mcptest.RequireSays(t, "third", called(t, s, "paper:note", nil))
		approve(http.StatusOK, "") // again is fine

		says("fourth")
		state("quarantined")
		seen(false)
		says("third")
		require.Equal(t, third.PendingDigest, state("approved").Digest, "an approved definition needs no approval")
		seen(true)
		mcptest.RequireSays(t, "third", called(t, s, "paper:note", nil))
		h.must(t, http.StatusNotFound, http.MethodPost, "/api/v1/upstreams/paper/tools/approve", map[string]any{"tool": "nothing"})

		t.Run("QuarantineSurvivesARestart", func(t *testing.T) {
			says("fifth")
			state("quarantined")
			require.NoError(t, h.app.Stop(t.Context()))
			next := startHub(t, h.cfg, paper)
			require.Equal(t, []string{"paper:echo"}, next.tools(t, "paper"))
			require.Equal(t, "quarantined", next.definition(t, "paper", "note").State)
		})
	})

	t.Run("TrustedChangesAreNotQuarantined", func(t *testing.T) {
		t.Parallel()
		paper := mcptest.New(t, "paper").Says("note", "first", nil)
		h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.Tools.TrustChanges = true }, paper)
		before := h.definition(t, "paper", "note").Digest
		paper.Says("note", "second", nil)
		eventually(t, func() bool { return h.definition(t, "paper", "note").Digest != before }, "the new one is known")
		require.Equal(t, "approved", h.definition(t, "paper", "note").State)
		mcptest.RequireSays(t, "second", called(t, h.speak(t, newest, nil), "paper:note", nil))
	})
}
