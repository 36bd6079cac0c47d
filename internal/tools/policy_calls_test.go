package tools_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/models"
	"comet/store/storetest"
)

func TestPolicyOfCalls(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper, ink := mcptest.NewPaper(t, "paper"), mcptest.NewPaper(t, "ink")
		s := toolstest.Start(t, db, &toolstest.Options{Tools: tools.Options{Expose: tools.ExposeAll}}, paper, ink)

		t.Run("a denied tool is not listed, and a call of it fails as if it did not exist", func(t *testing.T) {
			c := s.Client(t, "", models.ScopeToolsCall, models.ScopeMessagesSend, models.ScopeTasksRead)
			c.RequireSays(t, "shredded", "paper:shred", nil)
			c.SetPolicy(t, `{"deny":[{"tool":"paper:shred"},{"tool":"ink"},{"tool":"comet:submit_*"}]}`)
			before := paper.Calls() + ink.Calls()

			names, descriptions := c.Listed(t)
			require.Contains(t, names, "paper__note")
			require.NotContains(t, names, "paper__shred")
			require.NotContains(t, names, "comet__submit_task")
			require.NotContains(t, names, "ink__echo")
			require.NotEmpty(t, descriptions)
			require.Equal(t, []string{"paper:echo", "paper:note"}, c.Tools(t, "paper"))
			require.Empty(t, c.Tools(t, "ink"))
			require.NotContains(t, c.Search(t, "says shredded"), "paper:shred")
			require.Contains(t, s.Admin().Search(t, "says shredded"), "paper:shred")

			unknown := c.RequireFails(t, "TOOL_NOT_FOUND", "paper:nothing", nil)
			denied := c.RequireFails(t, "TOOL_NOT_FOUND", "paper:shred", nil)
			require.Equal(t, unknown, strings.ReplaceAll(denied, "shred", "nothing"), "the error is that of a tool that does not exist")
			c.RequireFails(t, "TOOL_NOT_FOUND", "paper__shred", nil)
			c.RequireFails(t, "TOOL_NOT_FOUND", "ink:echo", nil)
			require.Equal(t, "no such function", c.Run(t, `try { await paper.shred({}); return "called" } catch (e) { return "no such function" }`, nil))
			s.Work.WaitForWorker(t, s.AgentOf("paper"), func(w models.Worker) bool { return w.State == models.WorkerOnline })
			task := submitAndWait(t, s, c.Principal, "custom:paper:shred", "{}")
			require.Equal(t, models.TaskFailed, task.State, "%+v", task)
			require.Equal(t, before, paper.Calls()+ink.Calls(), "no call was forwarded")
		})

		t.Run("an upstream without an allowed tool is hidden", func(t *testing.T) {
			c := s.Client(t, "")
			c.SetPolicy(t, `{"deny":[{"tool":"ink"}]}`)
			list, err := s.Upstreams(t.Context(), c.Principal)
			require.NoError(t, err)
			require.Len(t, list, 1)
			require.Equal(t, "paper", list[0].ID)
			_, _, err = s.UpstreamFor(t.Context(), c.Principal, "paper")
			require.NoError(t, err)
			_, _, err = s.UpstreamFor(t.Context(), c.Principal, "ink")
			_, _, unknown := s.UpstreamFor(t.Context(), c.Principal, "nothing")
			toolstest.RequireError(t, err, errs.NotFound)
			require.Equal(t, strings.ReplaceAll(err.Error(), "ink", "nothing"), unknown.Error())
		})

		t.Run("rules may depend on arguments", func(t *testing.T) {
			c := s.Client(t, "")
			c.SetPolicy(t, `{"allow":[{"tool":"paper:*","arguments":{"path":"/srv/*"}}],"deny":[{"tool":"paper:echo","arguments":{"path":"/srv/secret*"}}]}`)
			require.Equal(t, []string{"agentcards:search_tools", "agentcards:execute_code", "agentcards:execute_dag", "agentcards:continue", "agentcards:abort", "agentcards:replan", "agentcards:approval_response", "paper:echo", "paper:note", "paper:shred"}, c.Tools(t, ""),
				"a tool that the policy allows with some arguments is visible")
			c.RequireSays(t, `{"path":"/srv/a"}`, "paper:echo", map[string]any{"path": "/srv/a"})
			for _, path := range []string{"/srv/secrets", "/srv/./secret", "/etc/passwd", "/srv/../etc/passwd", "/etc"} {
				c.RequireFails(t, "PERMISSION_DENIED", "paper:echo", map[string]any{"path": path})
			}
			c.RequireFails(t, "PERMISSION_DENIED", "paper:echo", nil)
		})

		t.Run("rules may depend on classes", func(t *testing.T) {
			c := s.Client(t, "")
			for classes, want := range map[string][]string{
				`["read"]`: {"ink:echo"}, `["write"]`: {"ink:note"}, `["destructive"]`: {"ink:shred"}, `["read","write"]`: {"ink:echo", "ink:note"},
			} {
				c.SetPolicy(t, `{"classes":`+classes+`}`)
				require.Equal(t, want, c.Tools(t, "ink"), classes)
			}
			c.SetPolicy(t, `{"classes":["read"]}`)
			classify := func(class models.ToolClass) {
				t.Helper()
				_, err := s.Classify(t.Context(), testkit.Admin(), "ink", "shred", class)
				require.NoError(t, err)
			}
			classify(models.ToolRead)
			toolstest.Eventually(t, func() bool { return len(c.Tools(t, "ink")) == 2 }, "the tool has the class read")
			classify("")
			toolstest.Eventually(t, func() bool { return len(c.Tools(t, "ink")) == 1 }, "the tool has the class of its annotations again")
			_, err := s.Classify(t.Context(), testkit.Admin(), "ink", "shred", "harmless")
			toolstest.RequireError(t, err, errs.InvalidRequest, "harmless")
		})

		t.Run("a change applies to the next call", func(t *testing.T) {
			c := s.Client(t, "")
			token := c.Principal.TokenID
			for range 3 {
				c.RequireSays(t, "noted", "paper:note", nil)
				c.SetPolicy(t, `{"deny":[{"tool":"*"}]}`)
				c.RequireFails(t, "TOOL_NOT_FOUND", "paper:note", nil)
				names, _ := c.Listed(t)
				require.Empty(t, names)
				p, _, err := s.Policy(t.Context(), token)
				require.NoError(t, err)
				require.Equal(t, []models.ToolRule{{Tool: "*"}}, p.Deny)
				require.NoError(t, s.DeletePolicy(t.Context(), token, nil))
			}
			p, version, err := s.Policy(t.Context(), token)
			require.NoError(t, err)
			require.Zero(t, version)
			require.Empty(t, p)
		})

		t.Run("a rule that can match nothing is rejected", func(t *testing.T) {
			c := s.Client(t, "")
			_, err := s.SetPolicy(t.Context(), testkit.Admin(), c.Principal.TokenID, models.ToolPolicy{Deny: []models.ToolRule{{Tool: "paper__shred"}}}, nil)
			toolstest.RequireError(t, err, errs.InvalidRequest, "paper__shred")
			c.RequireSays(t, "shredded", "paper:shred", nil)
		})

		t.Run("a call requires the scope tools:call", func(t *testing.T) {
			c := s.Client(t, "", models.ScopeAgentsRead)
			c.RequireFails(t, "PERMISSION_DENIED", "paper:echo", nil)
			_, err := s.MCPTools(t.Context(), c.Caller)
			require.Equal(t, "PERMISSION_DENIED", tools.ErrorName(err), "%v", err)
		})

		t.Run("arguments must be an object", func(t *testing.T) {
			s.Client(t, "").RequireFails(t, "INVALID_ARGUMENTS", "paper:echo", []int{1})
		})
	})
}
