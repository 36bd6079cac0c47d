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

func TestMCPCode(t *testing.T) {
	t.Parallel()
	paper, github := mcptest.NewPaper(t, "paper"), mcptest.NewGithub(t)
	h := openHub(t, "sqlite", func(cfg *config.Config) { cfg.Sandbox.Running = 4 }, paper, github)

	t.Run("CodeThatNamesAServerCanUseItsTools", func(t *testing.T) {
		t.Parallel()
		s := h.holder(t, "").speak(t, newest, nil)
		for _, code := range []string{
			`return (await github.list_commits({})).length`, `return (await github.listCommits({})).length`,
			`return (await mcp.github.listCommits({})).length`, `(await mcp["github"].list_commits({})).length`,
		} {
			require.InDelta(t, 3, result(t, run(t, s, code, nil)), 0, code)
		}
		require.Equal(t, []any{"undefined", "function"}, result(t, run(t, s, `return [typeof globalThis["pa" + "per"], typeof github.listCommits]`, nil)), "and only there")
	})

	t.Run("AnIntentMakesToolsAvailable", func(t *testing.T) {
		t.Parallel()
		s := h.holder(t, "").speak(t, newest, nil)
		code := `const g = globalThis["git" + "hub"]; return g ? (await g.listCommits({ limit: 100 })).filter(c => c.author === "alice").length : "none"`
		require.Equal(t, "none", result(t, run(t, s, code, nil)))
		require.InDelta(t, 2, result(t, run(t, s, code, map[string]any{"intent": "Analyser les commits GitHub"})), 0)
	})

	t.Run("CodeThatNamesAServerThatIsDownGetsAnError", func(t *testing.T) {
		t.Parallel()
		s := h.speak(t, newest, nil)
		status, body := h.add(t, "gone", map[string]any{"url": "http://127.0.0.1:1/mcp"})
		require.Equal(t, http.StatusCreated, status, body)
		eventually(t, func() bool { state, _ := h.state(t, "gone"); return state == "failed" }, "it is down")
		text := requireFailed(t, "SANDBOX_ERROR", run(t, s, "return await gone.anything({})", nil))
		require.Contains(t, text, `the MCP server "gone" is failed: `)
		require.NotContains(t, requireFailed(t, "SANDBOX_ERROR", run(t, s, "return nothing", nil)), "MCP server")
	})

	t.Run("ACallThatThePolicyDeniesIsThrown", func(t *testing.T) {
		t.Parallel()
		who := h.holder(t, "")
		h.policy(t, who, `{"deny":[{"tool":"paper:echo","arguments":{"path":"/secret*"}}]}`)
		got := result(t, run(t, who.speak(t, newest, nil), `
			try { await paper.echo({ path: "/secret/key" }); return "called" } catch (e) { return [e.message, await paper.echo({ path: "/open" })] }`, nil))
		require.Contains(t, got.([]any)[0], "may not call paper:echo")
		require.Equal(t, map[string]any{"path": "/open"}, got.([]any)[1])
		require.Len(t, who.calls(t, "?outcome=refused"), 1)
	})

	t.Run("CodeHasAMaximumSize", func(t *testing.T) {
		t.Parallel()
		s := h.holder(t, "").speak(t, newest, nil)
		of := func(size int) string { return "7 //" + strings.Repeat("x", size-4) }
		require.InDelta(t, 7, result(t, run(t, s, of(102_400), nil)), 0)
		requireFailed(t, "SANDBOX_CODE_TOO_LARGE", run(t, s, of(102_401), nil))
	})

	t.Run("ATimeoutEndsOnlyTheCode", func(t *testing.T) {
		t.Parallel()
		who := h.holder(t, "")
		s := who.speak(t, newest, nil)
		ended := make(chan *mcp.CallToolResult, 1)
		go func() {
			res, _ := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "agentcards:execute_code", Arguments: map[string]any{
				"code": `console.log("began"); for (;;) {}`, "sandbox_config": map[string]any{"timeout": 1500},
			}})
			ended <- res
		}()
		others, during := h.holder(t, "").speak(t, newest, nil), 0
		for {
			mcptest.RequireSays(t, "noted", called(t, others, "paper:note", nil))
			select {
			case res := <-ended:
				requireFailed(t, "SANDBOX_TIMEOUT", res)
				text, err := json.Marshal(res.StructuredContent)
				require.NoError(t, err)
				require.Contains(t, string(text), "began", "the logs so far")
				require.Positive(t, during)
				return
			default:
				during++
			}
		}
	})

	t.Run("FailuresHaveTheNamesOfTheDocument", func(t *testing.T) {
		t.Parallel()
		s := h.holder(t, "").speak(t, sessions, nil)
		require.Contains(t, requireFailed(t, "SANDBOX_SYNTAX", run(t, s, "return (", nil)), "SANDBOX_SYNTAX")
		requireFailed(t, "SANDBOX_ERROR", run(t, s, `throw new Error("mine")`, nil))
		requireFailed(t, "SANDBOX_MEMORY", run(t, s, `const a = []; for (;;) a.push("x".repeat(1 << 20) + a.length)`, map[string]any{"sandbox_config": map[string]any{"memoryLimit": 32}}))
		requireFailed(t, "SANDBOX_PATH_DENIED", run(t, s, `1`, map[string]any{"sandbox_config": map[string]any{"allowedReadPaths": []string{"/etc"}}}))
		p := h.restCall(t, http.StatusUnprocessableEntity, "agentcards:execute_code", map[string]any{"code": "return ("})
		require.Equal(t, "SANDBOX_SYNTAX", p["tool_error"])
	})
}
