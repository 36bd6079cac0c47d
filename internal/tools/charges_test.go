package tools_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/models"
	"comet/store/storetest"
)

// newEssays starts an upstream with a tool of each class and two long texts: a token is estimated as
// four bytes before it is counted, and essay has more bytes per token, prose fewer.
func newEssays(t *testing.T) *mcptest.Server {
	t.Helper()
	return mcptest.NewPaper(t, "paper").Says("essay", strings.Repeat("many words, ", 200), mcptest.Reads()).
		Says("prose", strings.Repeat(" internationalization responsibilities", 40), mcptest.Reads())
}

func all() tools.ToolCallQuery { return tools.ToolCallQuery{} }

func TestCharges(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper := newEssays(t)
		s := toolstest.Start(t, db, nil, paper)

		t.Run("a call costs the tokens of its arguments and its result", func(t *testing.T) {
			s.AddAgent(t, "reader", 100_000)
			c := s.Client(t, "reader")
			for n := range 20 {
				c.Call(t, []string{"paper:echo", "paper:essay"}[n%2], map[string]any{"n": n})
			}
			c.RequireFails(t, "TOOL_NOT_FOUND", "paper:nothing", nil)
			require.Positive(t, c.Run(t, `return (await paper.essay({})).length`, nil))
			c.From(tools.SourceREST, "").Call(t, "paper:note", nil)
			calls := c.Calls(t, all())
			require.Len(t, calls, 24)
			require.Equal(t, tokensOf(calls), used(t, s, "reader"))
			require.Greater(t, tokensOf(calls), int64(11*400), "an essay has at least as many tokens as words")
		})

		t.Run("an overestimate is not charged", func(t *testing.T) {
			s.AddAgent(t, "stylist", 100_000)
			c := s.Client(t, "stylist")
			for range 60 { // the ledger reserves more tokens several times
				require.False(t, c.Call(t, "paper:prose", nil).IsError)
			}
			calls := c.Calls(t, all())
			require.Len(t, calls, 60)
			require.Equal(t, tokensOf(calls), used(t, s, "stylist"))
		})

		t.Run("estimates are counted before a call is rejected", func(t *testing.T) {
			s.AddAgent(t, "saver", 1000)
			c := s.Client(t, "saver")
			require.False(t, c.Call(t, "paper:essay", nil).IsError)
			long := map[string]any{"n": strings.Repeat("many words, ", 400)}
			text := c.RequireFails(t, "BUDGET_EXCEEDED", "paper:echo", long)
			require.Contains(t, text, fmt.Sprintf("%d are used", tokensOf(c.Calls(t, all()))))
			_, err := c.TryCall(t, "paper:echo", long)
			require.NotNil(t, errs.From(err).Meta["reset_at"])
		})

		t.Run("a search is a call", func(t *testing.T) {
			s.AddAgent(t, "seeker", 100_000)
			c := s.Client(t, "seeker")
			require.NotEmpty(t, c.Search(t, "says an essay"))
			calls := c.Calls(t, all())
			require.Len(t, calls, 1)
			require.Equal(t, "agentcards:search_tools", calls[0].Server+":"+calls[0].Tool)
			require.Positive(t, calls[0].Tokens)
			require.Equal(t, calls[0].Tokens, used(t, s, "seeker"))
		})

		t.Run("a token without an agent charges nova", func(t *testing.T) {
			before := used(t, s, models.RootAgentID)
			c := s.Client(t, "")
			c.Call(t, "paper:essay", nil)
			calls := c.Calls(t, all())
			require.Len(t, calls, 1)
			require.Equal(t, before+tokensOf(calls), used(t, s, models.RootAgentID))
		})

		t.Run("no call is forwarded when the budget is spent", func(t *testing.T) {
			s.AddAgent(t, "poor", 1000)
			c := s.Client(t, "poor")
			var spent error
			for spent == nil {
				_, spent = c.TryCall(t, "paper:essay", nil)
				c.Calls(t, all()) // counts and charges the call
			}
			require.Equal(t, "BUDGET_EXCEEDED", tools.ErrorName(spent), "%v", spent)
			before := paper.Calls()
			for range 3 {
				c.RequireFails(t, "BUDGET_EXCEEDED", "paper:echo", nil)
			}
			c.From(tools.SourceREST, "").RequireFails(t, "BUDGET_EXCEEDED", "paper:note", nil)
			require.Equal(t, before, paper.Calls())
			require.Equal(t, tokensOf(c.Calls(t, all())), used(t, s, "poor"))
		})

		t.Run("tokens reserved in advance are released", func(t *testing.T) {
			s.AddAgent(t, "idler", 100_000)
			c := s.Client(t, "idler")
			c.Call(t, "paper:echo", nil)
			require.Positive(t, reserved(t, s, "idler"))
			s.DB.Clock.Advance(10 * time.Second)
			toolstest.Eventually(t, func() bool { return reserved(t, s, "idler") == 0 }, "nothing is reserved without calls")
			require.Equal(t, tokensOf(c.Calls(t, all())), used(t, s, "idler"))
		})
	})
}

func TestConcurrentCallsOverspendAtMostByTheCallsInProgress(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, nil, newEssays(t))
		const callers, limit = 32, 20_000
		s.AddAgent(t, "crowd", limit)
		c := s.Client(t, "crowd")
		var rejected atomic.Int64
		var running sync.WaitGroup
		for range callers {
			running.Go(func() {
				for range 40 {
					if _, err := c.TryCall(t, "paper:essay", nil); tools.ErrorName(err) == "BUDGET_EXCEEDED" {
						rejected.Add(1)
						return
					}
				}
			})
		}
		running.Wait()
		calls, most := c.Calls(t, all()), int64(0)
		for _, call := range calls {
			most = max(most, call.Tokens)
		}
		require.Positive(t, rejected.Load(), "the budget was spent")
		require.Equal(t, tokensOf(calls), used(t, s, "crowd"))
		require.LessOrEqual(t, used(t, s, "crowd"), limit+callers*most)
		require.Greater(t, used(t, s, "crowd"), int64(limit/2), "and no call was rejected before")
	})
}

// TestStopWritesAllCharges checks that each call that succeeds before Stop returns is in the audit
// log and in the ledger after the next start.
func TestStopWritesAllCharges(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper := mcptest.NewPaper(t, "paper")
		s := toolstest.Start(t, db, nil, paper)
		s.AddAgent(t, "reader", 100_000)
		c := s.Client(t, "reader")
		ctx, cancel := context.WithCancel(t.Context())
		var answered atomic.Int64
		var running sync.WaitGroup
		for n := range 8 {
			running.Go(func() {
				for ctx.Err() == nil {
					if _, err := c.TryCall(t, "paper:echo", map[string]any{"n": fmt.Sprint(n)}); err == nil {
						answered.Add(1)
					}
				}
			})
		}
		toolstest.Eventually(t, func() bool { return answered.Load() > 200 }, "calls are in progress")
		s.Stop(t)
		cancel()
		running.Wait()
		next := s.Restart(t, paper)
		calls := next.Admin().Calls(t, tools.ToolCallQuery{AgentID: "reader"})
		var succeeded int64
		for _, call := range calls {
			if call.Outcome == "success" {
				succeeded++
			}
		}
		require.Equal(t, answered.Load(), succeeded, "every call that was answered has its record")
		require.Equal(t, tokensOf(calls), used(t, next, "reader"))
		require.Zero(t, reserved(t, next, "reader"))
	})
}
