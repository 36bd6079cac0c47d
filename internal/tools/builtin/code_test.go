package builtin_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"comet/internal/sandbox"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/store/storetest"
)

// TestMain also acts as a process of the sandbox.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == sandbox.ChildArgument {
		sandbox.Child(os.Stdin, os.Stdout)
		return
	}
	goleak.VerifyTestMain(m)
}

// runCode runs a test on every database with the upstreams paper and github.
func runCode(t *testing.T, fn func(t *testing.T, s *toolstest.Tools)) {
	t.Helper()
	paper, github := mcptest.NewPaper(t, "paper"), mcptest.NewGithub(t)
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		fn(t, toolstest.Start(t, db, &toolstest.Options{MaxRuns: 4}, paper, github))
	})
}

func TestCodeCallsTools(t *testing.T) {
	t.Parallel()
	runCode(t, func(t *testing.T, s *toolstest.Tools) {
		t.Run("code that names a server can use its tools", func(t *testing.T) {
			c := s.Client(t, "")
			for _, code := range []string{
				`return (await github.list_commits({})).length`, `return (await github.listCommits({})).length`,
				`return (await mcp.github.listCommits({})).length`, `(await mcp["github"].list_commits({})).length`,
			} {
				require.InDelta(t, 3, c.Run(t, code, nil), 0, code)
			}
			require.Equal(t, []any{"undefined", "function"}, c.Run(t, `return [typeof globalThis["pa" + "per"], typeof github.listCommits]`, nil), "other servers are not available")
		})

		t.Run("an intent makes tools available", func(t *testing.T) {
			c := s.Client(t, "")
			code := `const g = globalThis["git" + "hub"]; return g ? (await g.listCommits({ limit: 100 })).filter(c => c.author === "alice").length : "none"`
			require.Equal(t, "none", c.Run(t, code, nil))
			require.InDelta(t, 2, c.Run(t, code, map[string]any{"intent": "Analyser les commits GitHub"}), 0)
		})

		t.Run("code gets its context", func(t *testing.T) {
			c := s.Client(t, "")
			require.Equal(t, []any{"a", "a"}, c.Run(t, `return [context.name, name]`, map[string]any{"context": map[string]any{"name": "a"}}))
			require.InDelta(t, 1, c.Run(t, `1`, map[string]any{"context": nil}), 0)
		})

		t.Run("code that names a server that is down gets an error", func(t *testing.T) {
			c := s.Admin()
			require.NoError(t, s.Put(t, "gone", map[string]any{"url": "http://127.0.0.1:1/mcp"}))
			toolstest.Eventually(t, func() bool {
				u, err := s.Upstream("gone")
				return err == nil && u.State == upstream.Failed
			}, "the upstream is down")
			text := c.RequireRunFails(t, "SANDBOX_ERROR", "return await gone.anything({})", nil)
			require.Contains(t, text, `the MCP server "gone" has failed: `)
			require.NotContains(t, c.RequireRunFails(t, "SANDBOX_ERROR", "return nothing", nil), "MCP server")
		})

		t.Run("a call that the policy denies is thrown", func(t *testing.T) {
			c := s.Client(t, "")
			c.SetPolicy(t, `{"deny":[{"tool":"paper:echo","arguments":{"path":"/secret*"}}]}`)
			got := c.Run(t, `
				try { await paper.echo({ path: "/secret/key" }); return "called" } catch (e) { return [e.message, await paper.echo({ path: "/open" })] }`, nil)
			require.Contains(t, got.([]any)[0], "may not call paper:echo")
			require.Equal(t, map[string]any{"path": "/open"}, got.([]any)[1])
			require.Len(t, c.Calls(t, tools.ToolCallQuery{Outcome: "refused"}), 1)
		})
	})
}

func TestCodeIsLimited(t *testing.T) {
	t.Parallel()
	runCode(t, func(t *testing.T, s *toolstest.Tools) {
		config := func(name string, value any) map[string]any {
			return map[string]any{"sandbox_config": map[string]any{name: value}}
		}

		t.Run("code has a maximum size", func(t *testing.T) {
			c := s.Client(t, "")
			of := func(size int) string { return "7 //" + strings.Repeat("x", size-4) }
			require.InDelta(t, 7, c.Run(t, of(102_400), nil), 0)
			c.RequireRunFails(t, "SANDBOX_CODE_TOO_LARGE", of(102_401), nil)
		})

		t.Run("a timeout ends only the code", func(t *testing.T) {
			c, others, during := s.Client(t, ""), s.Client(t, ""), 0
			ended := make(chan error, 1)
			go func() {
				args := config("timeout", 1500)
				args["code"] = `console.log("began"); for (;;) {}`
				_, err := c.TryCall(t, "agentcards:execute_code", args)
				ended <- err
			}()
			for {
				others.RequireSays(t, "noted", "paper:note", nil)
				select {
				case err := <-ended:
					require.Equal(t, "SANDBOX_TIMEOUT", tools.ErrorName(err), "%v", err)
					text, marshalled := json.Marshal(tools.ErrorDetails(err))
					require.NoError(t, marshalled)
					require.Contains(t, string(text), "began", "the logs so far")
					require.Positive(t, during)
					return
				default:
					during++
				}
			}
		})

		t.Run("failures have the documented error names", func(t *testing.T) {
			c := s.Client(t, "")
			c.RequireRunFails(t, "SANDBOX_SYNTAX", "return (", nil)
			c.RequireRunFails(t, "SANDBOX_ERROR", `throw new Error("mine")`, nil)
			c.RequireRunFails(t, "SANDBOX_MEMORY", `const a = []; for (;;) a.push("x".repeat(1 << 20) + a.length)`, config("memoryLimit", 32))
			c.RequireRunFails(t, "SANDBOX_PATH_DENIED", `1`, config("allowedReadPaths", []string{"/etc"}))
		})

		t.Run("invalid arguments are named", func(t *testing.T) {
			c := s.Client(t, "")
			for says, args := range map[string]map[string]any{
				"code must not be empty":     {"code": " "},
				"context must be an object":  {"code": "1", "context": "text"},
				"sandbox_config.timeout":     {"code": "1", "sandbox_config": map[string]any{"timeout": 0}},
				"sandbox_config.memoryLimit": {"code": "1", "sandbox_config": map[string]any{"memoryLimit": 0.5}},
				"colour":                     {"code": "1", "colour": "red"},
			} {
				require.Contains(t, c.RequireFails(t, "INVALID_ARGUMENTS", "agentcards:execute_code", args), says)
				_, err := c.TryCall(t, "agentcards:execute_code", args)
				require.ErrorIs(t, err, tools.ErrInvalidArguments)
			}
		})
	})
}

// answering returns the options of a caller that fills in forms.
func answering(fill func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)) *tools.CallOptions {
	return &tools.CallOptions{
		Can: upstream.Capabilities{Elicitation: &mcp.ElicitationCapabilities{}},
		Ask: func(ctx context.Context, questions mcp.InputRequestMap) (mcp.InputResponseMap, error) {
			answers := mcp.InputResponseMap{}
			for name, form := range questions {
				filled, err := fill(ctx, form.(*mcp.ElicitParams))
				if err != nil {
					return nil, err
				}
				answers[name] = filled
			}
			return answers, nil
		},
	}
}

// agree accepts the question of a tool.
func agree(_ context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	if p.Message != "shred it?" {
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}
	return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"sure": true}}, nil
}

// TestCodePassesQuestionsOfTools checks that the question of a tool that code calls is put to the
// caller of the code.
func TestCodePassesQuestionsOfTools(t *testing.T) {
	t.Parallel()
	old, newer := mcptest.NewOf(t, "old", mcptest.Sessions).Asking(mcptest.Sessions), mcptest.New(t, "new").Asking(mcptest.Newest)
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, nil, old, newer)
		c := s.Client(t, "")
		for _, id := range []string{"old", "new"} {
			code, err := json.Marshal(map[string]string{"code": `return await mcp["` + id + `"].ask({})`})
			require.NoError(t, err)
			for want, elicit := range map[string]*tools.CallOptions{`accept {"sure":true}`: answering(agree), "decline null": nil} {
				res, err := s.Call(t.Context(), c.Caller, "agentcards:execute_code", code, elicit)
				require.NoError(t, err)
				var out struct{ Result string }
				require.NoError(t, json.Unmarshal([]byte(mcptest.TextOf(t, res)), &out))
				require.Equal(t, want, out.Result)
			}
		}
	})
}
