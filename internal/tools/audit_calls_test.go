package tools_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
	"comet/internal/testkit/toolstest"
	"comet/internal/tools"
	"comet/models"
	"comet/store/storetest"
)

// idsOf returns the ids of the tools of calls.
func idsOf(calls []models.ToolCall) (ids []string) {
	for _, c := range calls {
		ids = append(ids, c.Server+":"+c.Tool)
	}
	return ids
}

func TestAuditOfCalls(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		s := toolstest.Start(t, db, nil, mcptest.NewPaper(t, "paper").Fails("no"))
		c := s.Client(t, "")

		t.Run("every call has one record", func(t *testing.T) {
			const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
			c.Call(t, "paper__echo", map[string]any{"a": 1})
			require.True(t, c.Call(t, "paper:fail", nil).IsError)
			c.RequireFails(t, "TOOL_NOT_FOUND", "paper:nothing", nil)
			c.From(tools.SourceREST, trace).Call(t, "paper:note", nil)
			calls := c.Calls(t, tools.ToolCallQuery{Limit: 2})
			require.Len(t, calls, 4)
			var seen [][]string
			for _, call := range calls {
				require.Equal(t, c.Principal.TokenID, call.TokenID)
				require.Equal(t, "holder", call.Actor)
				require.Equal(t, models.RootAgentID, call.AgentID)
				seen = append(seen, []string{call.Source, call.Server + ":" + call.Tool, string(call.Class), call.Outcome, call.Error, call.TraceID, call.Digest})
			}
			nothing := digestOf("{}")
			require.Equal(t, [][]string{
				{"rest", "paper:note", "write", "success", "", trace, nothing},
				{"mcp", "paper:nothing", "", "refused", "TOOL_NOT_FOUND", "", nothing},
				{"mcp", "paper:fail", "destructive", "error", "TOOL_ERROR", "", nothing},
				{"mcp", "paper:echo", "read", "success", "", "", digestOf(`{"a":1}`)},
			}, seen, "the newest first")
			require.Zero(t, calls[1].Tokens, "a call that reached no tool costs nothing")
			for _, n := range []int{0, 2, 3} {
				require.Positive(t, calls[n].Tokens)
				require.Positive(t, calls[n].Duration)
			}
		})

		t.Run("calls of code name their run", func(t *testing.T) {
			coder := s.Client(t, "")
			require.InDelta(t, 2, coder.Run(t, `await paper.note({}); await paper.echo({x: 1}); return 2`, nil), 0)
			require.Len(t, coder.Calls(t, all()), 3)
			runs := coder.Calls(t, tools.ToolCallQuery{Tool: "execute_code"})
			require.Len(t, runs, 1)
			inner := coder.Calls(t, tools.ToolCallQuery{ParentID: runs[0].ID})
			require.Equal(t, []string{"paper:echo", "paper:note"}, idsOf(inner))
			require.Equal(t, tools.SourceCode, inner[0].Source)
			require.Equal(t, digestOf(`{"x":1}`), inner[0].Digest)
		})

		t.Run("only an admin sees calls of other tokens", func(t *testing.T) {
			other := s.Client(t, "")
			require.Empty(t, other.Calls(t, all()))
			require.Empty(t, other.Calls(t, tools.ToolCallQuery{TokenID: c.Principal.TokenID}))
			require.NotEmpty(t, s.Admin().Calls(t, tools.ToolCallQuery{TokenID: c.Principal.TokenID}))
		})

		t.Run("records are kept for the retention", func(t *testing.T) {
			require.NoError(t, s.Purge(t.Context()))
			require.NotEmpty(t, c.Calls(t, all()))
			s.DB.Clock.Advance(time.Since(s.DB.Now()) + 31*24*time.Hour) // the age is that of the ids, which have the real time
			require.NoError(t, s.Purge(t.Context()))
			require.Empty(t, c.Calls(t, all()))
		})
	})
}

// TestCancelledCall checks that the cancellation of a call reaches the upstream and that the audit
// log names it.
func TestCancelledCall(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		for _, revision := range []string{mcptest.Newest, mcptest.Sessions} {
			paper := mcptest.NewOf(t, "paper-"+revision[:4], revision)
			began, ended := paper.Held()
			s := toolstest.Start(t, storetest.Open(t, db.Database()), nil, paper)
			c := s.Client(t, "")
			ctx, cancel := context.WithCancel(t.Context())
			failed := make(chan error, 1)
			go func() {
				_, err := s.Call(ctx, c.Caller, paper.ID+":held", nil, nil)
				failed <- err
			}()
			<-began
			cancel()
			require.ErrorIs(t, <-failed, context.Canceled)
			require.ErrorIs(t, <-ended, context.Canceled)
			calls := c.Calls(t, all())
			require.Len(t, calls, 1)
			require.Equal(t, []string{"error", "CANCELLED"}, []string{calls[0].Outcome, calls[0].Error})
		}
	})
}

// TestWaitForAudit checks that with WaitForAudit a call returns after its record is written, and that
// the metrics count it.
func TestWaitForAudit(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		metrics := prometheus.NewRegistry()
		s := toolstest.Start(t, db, &toolstest.Options{Tools: tools.Options{WaitForAudit: true, Registerer: metrics}}, mcptest.NewPaper(t, "paper"))
		for n := range 3 {
			s.Admin().RequireSays(t, "noted", "paper:note", nil)
			stored, err := db.Tools(t.Context()).Calls(tools.ToolCallQuery{Limit: 10})
			require.NoError(t, err)
			require.Len(t, stored, n+1)
		}
		families, err := metrics.Gather()
		require.NoError(t, err)
		require.Len(t, families, 2)
		for _, f := range families {
			if f.GetName() == "comet_tool_calls_total" {
				require.InDelta(t, 3, f.GetMetric()[0].GetCounter().GetValue(), 0)
			}
		}
	})
}

// TestEventsOfCalls checks the events of calls and of upstreams.
func TestEventsOfCalls(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		paper := mcptest.NewPaper(t, "paper")
		s := toolstest.Start(t, db, nil, paper)
		s.AddAgent(t, "reader", 100_000)
		c := s.Client(t, "reader")
		sub := s.Feed.Subscribe(0).Only("tool.called", "tool.failed", "upstream.up", "upstream.down")
		next := func() models.Event {
			t.Helper()
			list, err := sub.Next(t.Context(), 1)
			require.NoError(t, err)
			return list[0]
		}
		e := next()
		require.Equal(t, []string{"upstream.up", "paper"}, []string{string(e.Type), e.Key})
		require.JSONEq(t, `{"id":"paper","tools":3}`, string(e.Data))

		c.Call(t, "paper:echo", nil)
		e = next()
		require.Equal(t, []string{"tool.called", "paper:echo"}, []string{string(e.Type), e.Key})
		for _, member := range []string{`"tool":"paper:echo"`, `"agent_id":"reader"`, `"outcome":"success"`, `"source":"mcp"`} {
			require.Contains(t, string(e.Data), member)
		}
		c.RequireFails(t, "TOOL_NOT_FOUND", "paper:nothing", nil)
		e = next()
		require.Equal(t, []string{"tool.failed", "paper:nothing"}, []string{string(e.Type), e.Key})
		require.Contains(t, string(e.Data), `"error":"TOOL_NOT_FOUND"`)

		mcptest.WriteServers(t, s.File)
		require.NoError(t, s.ReloadUpstreams(t.Context()))
		e = next()
		require.Equal(t, []string{"upstream.down", "paper"}, []string{string(e.Type), e.Key})
	})
}
