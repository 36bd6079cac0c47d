package app_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
)

// spent returns the total cost of the calls.
func spent(all []auditLine) (sum int64) {
	for _, l := range all {
		sum += l.Tokens
	}
	return sum
}

// budget is the state of an agent's budget.
type budget struct {
	Used      int64 `json:"used_today"`
	Reserved  int64
	Remaining *int64
}

func (c *client) budget(t *testing.T, id string) budget {
	t.Helper()
	return get[budget](t, c, "/api/v1/agents/"+id+"/usage")
}

func requireDone(t *testing.T, res *mcp.CallToolResult) {
	t.Helper()
	require.False(t, res.IsError, mcptest.TextOf(t, res))
}

func TestMCPCharges(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		// A token is estimated as four bytes before it is counted: one text has more bytes per
		// token, the other fewer.
		paper := mcptest.NewPaper(t, "paper").Says("essay", strings.Repeat("many words, ", 200), mcptest.Reads()).Says("prose", strings.Repeat(" internationalization responsibilities", 40), mcptest.Reads())
		h := openHub(t, database, nil, paper)

		t.Run("ACallCostsTheTokensOfItsArgumentsAndItsResult", func(t *testing.T) {
			h.agent(t, "reader", 100_000)
			who := h.holder(t, "reader")
			s := who.speak(t, newest, nil)
			for n := range 20 {
				called(t, s, []string{"paper:echo", "paper:essay"}[n%2], map[string]any{"n": n})
			}
			called(t, s, "paper:nothing", nil)
			result(t, run(t, s, `return (await paper.essay({})).length`, nil))
			who.restCall(t, http.StatusOK, "paper:note", nil)
			all := who.calls(t, "?limit=1000")
			require.Len(t, all, 24)
			require.Equal(t, spent(all), h.used(t, "reader"))
			require.Greater(t, spent(all), int64(11*400), "an essay has at least as many tokens as words")
		})

		t.Run("AnOverestimateIsNotCharged", func(t *testing.T) {
			h.agent(t, "stylist", 100_000)
			who := h.holder(t, "stylist")
			s := who.speak(t, newest, nil)
			for range 60 { // the ledger is asked for more again and again
				requireDone(t, called(t, s, "paper:prose", nil))
			}
			all := who.calls(t, "?limit=1000")
			require.Len(t, all, 60)
			require.Equal(t, spent(all), h.used(t, "stylist"))
		})

		t.Run("EstimatesAreCountedBeforeACallIsRejected", func(t *testing.T) {
			h.agent(t, "saver", 1000)
			who := h.holder(t, "saver")
			s := who.speak(t, newest, nil)
			requireDone(t, called(t, s, "paper:essay", nil))
			text := requireFailed(t, "BUDGET_EXCEEDED", called(t, s, "paper:echo", map[string]any{"n": strings.Repeat("many words, ", 400)}))
			used := spent(who.calls(t, "?limit=1000"))
			require.Contains(t, text, fmt.Sprintf("%d are used", used))
			answer := who.restCall(t, http.StatusTooManyRequests, "paper:echo", map[string]any{"n": strings.Repeat("many words, ", 400)})
			require.Contains(t, answer, "reset_at")
		})

		t.Run("ASearchIsACallInEveryAPI", func(t *testing.T) {
			h.agent(t, "seeker", 100_000)
			who := h.holder(t, "seeker")
			require.NotEmpty(t, found(t, who.client, "says an essay"))
			all := who.calls(t, "?limit=1000")
			require.Len(t, all, 1)
			require.Equal(t, "agentcards:search_tools", all[0].Tool)
			require.Positive(t, all[0].Tokens)
			require.Equal(t, all[0].Tokens, h.used(t, "seeker"))
		})

		t.Run("ATokenOfNoAgentChargesNova", func(t *testing.T) {
			before := h.used(t, "nova")
			who := h.holder(t, "")
			called(t, who.speak(t, sessions, nil), "paper:essay", nil)
			all := who.calls(t, "?limit=1000")
			require.Len(t, all, 1)
			require.Equal(t, before+spent(all), h.used(t, "nova"))
		})

		t.Run("WithASpentBudgetNoCallIsForwarded", func(t *testing.T) {
			h.agent(t, "poor", 1000)
			who := h.holder(t, "poor")
			s := who.speak(t, newest, nil)
			var text string
			for text == "" {
				if res := called(t, s, "paper:essay", nil); res.IsError {
					text = requireFailed(t, "BUDGET_EXCEEDED", res)
				}
				who.calls(t, "?limit=1") // what was said is counted and charged
			}
			before := paper.Calls()
			for range 3 {
				requireFailed(t, "BUDGET_EXCEEDED", called(t, s, "paper:echo", nil))
			}
			p := who.restCall(t, http.StatusTooManyRequests, "paper:note", nil)
			require.Equal(t, "BUDGET_EXCEEDED", p["tool_error"])
			require.Equal(t, before, paper.Calls())
			require.Equal(t, spent(who.calls(t, "?limit=1000")), h.used(t, "poor"))
		})

		t.Run("ConcurrentCallsOverspendByTheCallsInProgressAtMost", func(t *testing.T) {
			const callers, limit = 32, 20_000
			h.agent(t, "crowd", limit)
			who := h.holder(t, "crowd")
			var largest atomic.Int64
			var refused atomic.Int64
			var all sync.WaitGroup
			for range callers {
				s := who.speak(t, newest, nil)
				all.Go(func() {
					for range 40 {
						res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "paper:essay"})
						if err == nil && res.IsError {
							refused.Add(1)
							return
						}
						largest.Add(1)
					}
				})
			}
			all.Wait()
			trail := who.calls(t, "?limit=1000")
			most := int64(0)
			for _, l := range trail {
				most = max(most, l.Tokens)
			}
			require.Positive(t, refused.Load(), "the budget was spent")
			require.Equal(t, spent(trail), h.used(t, "crowd"))
			require.LessOrEqual(t, h.used(t, "crowd"), limit+callers*most)
			require.Greater(t, h.used(t, "crowd"), int64(limit/2), "and not refused before")
		})

		t.Run("HeldTokensAreReleased", func(t *testing.T) {
			h.agent(t, "idler", 100_000)
			who := h.holder(t, "idler")
			called(t, who.speak(t, newest, nil), "paper:echo", nil)
			require.Positive(t, h.budget(t, "idler").Reserved)
			eventually(t, func() bool { return h.budget(t, "idler").Reserved == 0 }, "nothing is reserved without calls")
			require.Equal(t, spent(who.calls(t, "?limit=10")), h.used(t, "idler"))
		})
	})
}

// TestMCPStopWritesAllCharges checks that every call a stopping server still answered is in the
// audit log and in the ledger after the next start.
func TestMCPStopWritesAllCharges(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		paper := mcptest.NewPaper(t, "paper")
		h := openHub(t, database, nil, paper)
		h.agent(t, "reader", 100_000)
		who := h.holder(t, "reader")
		ctx, cancel := context.WithCancel(t.Context())
		var answered atomic.Int64
		var all sync.WaitGroup
		for n := range 8 {
			all.Go(func() {
				for ctx.Err() == nil {
					status, _, err := who.do(ctx, http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": "paper:echo", "arguments": map[string]any{"n": fmt.Sprint(n)}})
					if err != nil {
						return
					}
					if status == http.StatusOK {
						answered.Add(1)
					}
				}
			})
		}
		eventually(t, func() bool { return answered.Load() > 200 }, "calls are under way")
		require.NoError(t, h.app.Stop(t.Context()))
		cancel()
		all.Wait()
		next := startHub(t, h.cfg, paper)
		trail := next.calls(t, "?limit=1000&agent_id=reader")
		require.GreaterOrEqual(t, int64(len(trail)), answered.Load(), "every call that was answered has its line")
		require.Equal(t, spent(trail), next.used(t, "reader"))
		require.Zero(t, next.budget(t, "reader").Reserved)
	})
}
