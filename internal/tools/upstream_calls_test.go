package tools_test

import (
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/internal/upstream"
	"comet/models"
	"comet/store/storetest"
)

// remove removes an upstream of the API.
func remove(t *testing.T, s *toolstest.Tools, id string) error {
	t.Helper()
	return s.RemoveUpstream(t.Context(), testkit.Admin(), id, nil)
}

func TestUpstreamsOfTheAPI(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper, ink, other := mcptest.NewPaper(t, "paper"), mcptest.New(t, "ink").Echo(), mcptest.New(t, "ink").Says("blot", "blotted", nil)
		s := toolstest.Start(t, db, nil, paper)
		c := s.Admin()

		t.Run("are added, changed and removed", func(t *testing.T) {
			require.NoError(t, s.Put(t, "ink", map[string]any{"url": ink.URL}))
			s.WaitForTools(t, "ink")
			c.RequireSays(t, "{}", "ink:echo", nil)
			require.NoError(t, s.RestartUpstream("ink"))
			toolstest.Eventually(t, func() bool {
				u, err := s.Upstream("ink")
				return err == nil && u.Restarts == 1 && u.State == upstream.Ready
			}, "it restarts at once")
			s.WaitForTools(t, "ink")
			require.NoError(t, s.Put(t, "ink", map[string]any{"url": other.URL}))
			toolstest.Eventually(t, func() bool { ids := c.Tools(t, "ink"); return len(ids) == 1 && ids[0] == "ink:blot" }, "its tools are those of the other server")
			c.RequireSays(t, "blotted", "ink:blot", nil)
			require.NoError(t, remove(t, s, "ink"))
			toolstest.Eventually(t, func() bool { return len(c.Tools(t, "ink")) == 0 }, "its tools go with it")
			c.RequireFails(t, "TOOL_NOT_FOUND", "ink:blot", nil)
			toolstest.RequireError(t, remove(t, s, "ink"), errs.NotFound)
		})

		for rule, c := range map[string]struct {
			id    string
			entry map[string]any
			code  errs.Code
			says  string
		}{
			"a secret in a header":                {"ink", map[string]any{"url": ink.URL, "headers": map[string]string{"Authorization": "Bearer s3cret"}}, errs.InvalidRequest, "${AUTHORIZATION}"},
			"a secret in the environment":         {"ink", map[string]any{"command": "true", "env": map[string]string{"GITHUB_TOKEN": "s3cret"}}, errs.InvalidRequest, "${GITHUB_TOKEN}"},
			"a bearer token in clear":             {"ink", map[string]any{"url": ink.URL, "comet": map[string]any{"bearer": "s3cret"}}, errs.InvalidRequest, "${BEARER_TOKEN}"},
			"an id of comet's own":                {"agentcards", map[string]any{"url": ink.URL}, errs.InvalidRequest, "comet's own"},
			"the other id of comet's own":         {"comet", map[string]any{"url": ink.URL}, errs.InvalidRequest, "comet's own"},
			"an id of the file":                   {"paper", map[string]any{"url": ink.URL}, errs.Conflict, "servers.json"},
			"an entry without command and URL":    {"ink", map[string]any{}, errs.InvalidRequest, "command"},
			"an id with other characters":         {"in_k", map[string]any{"url": ink.URL}, errs.InvalidRequest, "in_k"},
			"an address of another kind":          {"ink", map[string]any{"url": "ftp://127.0.0.1/"}, errs.InvalidRequest, "url"},
			"an entry with an unknown member":     {"ink", map[string]any{"url": ink.URL, "comet": map[string]any{"colour": "red"}}, errs.InvalidRequest, "colour"},
			"an entry that is longer than 64 KiB": {"ink", map[string]any{"url": ink.URL, "x": make([]int, 40_000)}, errs.BodyTooLarge, "65536"},
		} {
			t.Run(rule+" is rejected", func(t *testing.T) {
				err := s.Put(t, c.id, c.entry)
				require.True(t, errs.Is(err, c.code), "%v", err)
				text := err.Error() + tools.Detail(err)
				for _, f := range errs.From(err).Fields {
					text += " " + f.Pointer
				}
				require.Contains(t, text, c.says)
				require.NotContains(t, text, "s3cret")
				if c.id == "ink" {
					_, err := s.Upstream("ink")
					toolstest.RequireError(t, err, errs.NotFound)
				}
			})
		}

		t.Run("a failed upstream hides only its own tools and reports the reason", func(t *testing.T) {
			require.NoError(t, s.Put(t, "gone", map[string]any{"url": "http://127.0.0.1:1/mcp"}))
			toolstest.Eventually(t, func() bool {
				u, err := s.Upstream("gone")
				return err == nil && u.State == upstream.Failed && u.Error != ""
			}, "the upstream is down")
			for _, name := range []string{"gone:anything", "gone__anything"} {
				require.Contains(t, c.RequireFails(t, "MCP_SERVER_ERROR", name, nil), `"gone"`)
			}
			denied := s.Client(t, "")
			denied.SetPolicy(t, `{"deny":[{"tool":"gone"}]}`)
			denied.RequireFails(t, "TOOL_NOT_FOUND", "gone:anything", nil)
			c.RequireSays(t, "noted", "paper:note", nil)
			s.WaitForUpstreams(t.Context(), testkit.Timeout)
			require.NoError(t, remove(t, s, "gone"))
		})
	})
}

func TestUpstreamsOfTheFile(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper, ink := mcptest.NewPaper(t, "paper"), mcptest.New(t, "ink").Echo()
		s := toolstest.Start(t, db, nil, paper)
		c := s.Admin()

		t.Run("a file with a mistake changes nothing", func(t *testing.T) {
			for _, text := range []string{`{"mcpServers":`, `{"mcpServers":{"paper":{}}}`, `{"mcpServers":{"comet":{"url":"` + ink.URL + `"}}}`} {
				require.NoError(t, os.WriteFile(s.File, []byte(text), 0o600))
				toolstest.RequireError(t, s.ReloadUpstreams(t.Context()), errs.InvalidRequest, "servers.json")
				c.RequireSays(t, "noted", "paper:note", nil)
			}
			mcptest.WriteServers(t, s.File, ink)
			require.NoError(t, s.ReloadUpstreams(t.Context()))
			s.WaitForTools(t, "ink")
			toolstest.Eventually(t, func() bool { return len(c.Tools(t, "paper")) == 0 }, "the tools of a removed upstream go")
		})

		t.Run("a file with the id of an added upstream changes nothing", func(t *testing.T) {
			require.NoError(t, s.Put(t, "added", map[string]any{"url": ink.URL}))
			added := mcptest.New(t, "added").Echo()
			mcptest.WriteServers(t, s.File, paper, added)
			toolstest.RequireError(t, s.ReloadUpstreams(t.Context()), errs.Conflict, "added")
			require.NotEmpty(t, c.Tools(t, "ink"), "an upstream that the file no longer names stays")
			require.NoError(t, remove(t, s, "added"))
		})

		t.Run("a change of the file is applied automatically", func(t *testing.T) {
			mcptest.WriteServers(t, s.File, paper, ink)
			s.WaitForTools(t, "paper")
		})

		t.Run("a missing file is an error", func(t *testing.T) {
			require.NoError(t, os.Remove(s.File))
			toolstest.RequireError(t, s.ReloadUpstreams(t.Context()), errs.InvalidRequest, "cannot be read")
			c.RequireSays(t, "noted", "paper:note", nil)
		})
	})
}

func TestToolsDoNotStartWithAMistakeInTheFile(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.New(t, db, nil)
		require.NoError(t, os.WriteFile(s.File, []byte(`{"mcpServers":[]}`), 0o600))
		require.ErrorContains(t, s.StartServices(t), "mcpServers")
	})
}

func TestProgramsCanBeAllowedInTheFileOnly(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, &toolstest.Options{Tools: tools.Options{RejectCommands: true}})
		for _, entry := range []map[string]any{
			{"command": "true"},
			{"url": "http://127.0.0.1:1/${HOME}"},
		} {
			toolstest.RequireError(t, s.Put(t, "ink", entry), errs.InvalidRequest, "mcp.add_commands")
		}
		require.NoError(t, s.Put(t, "ink", map[string]any{"url": "http://127.0.0.1:1/mcp", "headers": map[string]string{"Authorization": "Bearer ${MCP_TOKEN}"}}))
	})
}

// policyTTL is longer than a replica caches a policy.
const policyTTL = time.Second

// spendOnBoth spends the budget of an agent with concurrent calls on two replicas, and checks that
// they exceed it by the calls in progress at most.
func spendOnBoth(t *testing.T, here, there *toolstest.Client, budget int64) {
	t.Helper()
	const callers = 16
	var rejected atomic.Int64
	var running sync.WaitGroup
	for n := range callers {
		running.Go(func() {
			for rejected.Load() < callers {
				if _, err := []*toolstest.Client{here, there}[n%2].TryCall(t, "paper:essay", nil); err != nil {
					rejected.Add(1)
				}
			}
		})
	}
	running.Wait()
	there.Calls(t, all()) // each replica writes its pending calls
	calls, most := here.Calls(t, all()), int64(0)
	for _, c := range calls {
		most = max(most, c.Tokens)
	}
	require.LessOrEqual(t, tokensOf(calls), budget+callers*most)
	require.GreaterOrEqual(t, rejected.Load(), int64(callers))
}

// TestReplicas checks that two services on one database have the same upstreams, policies and
// approvals.
func TestReplicas(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		one, two := toolstest.Start(t, db, nil), toolstest.Start(t, db, nil)
		paper := mcptest.NewPaper(t, "paper").Says("essay", "a short essay about nothing at all", mcptest.Reads())
		require.NoError(t, one.Put(t, "paper", map[string]any{"url": paper.URL}))
		for _, s := range []*toolstest.Tools{one, two} {
			s.WaitForTools(t, "paper")
			s.Admin().RequireSays(t, "noted", "paper:note", nil)
		}

		one.AddAgent(t, "crowd", 10_000)
		here := one.Client(t, "crowd")
		there := here.At(two)
		require.Len(t, there.Tools(t, "paper"), 4)
		here.SetPolicy(t, `{"deny":[{"tool":"paper:shred"}]}`)
		db.Clock.Advance(policyTTL)
		require.Len(t, there.Tools(t, "paper"), 3, "the policy applies on the other replica, too")

		spendOnBoth(t, here, there, 10_000)
		require.Equal(t, tokensOf(here.Calls(t, all())), used(t, one, "crowd"))

		_, err := one.Classify(t.Context(), testkit.Admin(), "paper", "note", models.ToolDestructive)
		require.NoError(t, err)
		here.SetPolicy(t, `{"classes":["destructive"]}`)
		db.Clock.Advance(policyTTL)
		toolstest.Eventually(t, func() bool { return len(there.Tools(t, "paper")) == 2 }, "the class applies on the other replica, too")

		one.Stop(t)
		two.Admin().RequireSays(t, "noted", "paper:note", nil)
		require.NoError(t, remove(t, two, "paper"))
		toolstest.Eventually(t, func() bool { return len(two.Admin().Tools(t, "paper")) == 0 }, "its tools go")
	})
}
