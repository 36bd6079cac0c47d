package app_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
)

// auditLine is a record of the audit log.
type auditLine struct {
	ID, Source, Actor, Tool, Class, Outcome, Error string
	TokenID                                        string  `json:"token_id"`
	AgentID                                        string  `json:"agent_id"`
	Digest                                         string  `json:"arguments_digest"`
	DurationMS                                     float64 `json:"duration_ms"`
	Tokens                                         int64
	ParentID                                       string `json:"parent_id"`
	TaskID                                         string `json:"task_id"`
	TraceID                                        string `json:"trace_id"`
}

// calls returns the audit records that the client may see, newest first.
func (c *client) calls(t *testing.T, query string) (all []auditLine) {
	t.Helper()
	type page struct {
		Calls      []auditLine
		NextCursor string `json:"next_cursor"`
	}
	path := "/api/v1/tools/calls" + query
	for next := path; next != ""; {
		p := get[page](t, c, next)
		all = append(all, p.Calls...)
		if next = ""; p.NextCursor != "" {
			next = path + "&cursor=" + p.NextCursor
		}
	}
	return all
}

// spent returns the total cost of the calls.
func spent(all []auditLine) (sum int64) {
	for _, l := range all {
		sum += l.Tokens
	}
	return sum
}

func digestOf(args string) string {
	sum := sha256.Sum256([]byte(args))
	return hex.EncodeToString(sum[:])
}

// sse is a stream of server-sent events.
type sse struct {
	in *bufio.Scanner
	id string
}

// follow opens a stream that ends with the test.
func (c *client) follow(t *testing.T, path string, header ...string) *sse {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	resp, err := c.Open(ctx, http.MethodGet, path, "", header...)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		_ = resp.Body.Close()
	})
	require.Equal(t, http.StatusOK, resp.StatusCode)
	return &sse{in: bufio.NewScanner(resp.Body)}
}

// next returns the name and the data of the next named event.
func (s *sse) next(t *testing.T) (name string, data map[string]any) {
	t.Helper()
	for s.in.Scan() {
		field, value, _ := strings.Cut(s.in.Text(), ": ")
		switch {
		case field == "event":
			name = value
		case field == "id":
			s.id = value
		case field == "data" && name != "":
			var e struct{ Data map[string]any }
			require.NoError(t, json.Unmarshal([]byte(value), &e))
			data = e.Data
		case field == "" && name != "":
			return name, data
		}
	}
	require.FailNow(t, "the stream has ended")
	return "", nil
}

// TestMCPAudit checks the records of calls over MCP and over REST, page by page.
func TestMCPAudit(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openHub(t, database, nil, mcptest.NewPaper(t, "paper"))
		who := h.holder(t, "")
		s := who.speak(t, newest, nil)
		called(t, s, "paper__echo", map[string]any{"a": 1})
		called(t, s, "paper:nothing", nil)
		who.must(t, http.StatusOK, http.MethodPost, "/api/v1/tools/call", map[string]any{"tool": "paper:note"}, "traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
		all := who.calls(t, "?limit=2")
		require.Len(t, all, 3)
		var seen [][]string
		for _, l := range all {
			require.Equal(t, who.id, l.TokenID)
			require.Equal(t, "holder", l.Actor)
			require.Equal(t, "nova", l.AgentID)
			seen = append(seen, []string{l.Source, l.Tool, l.Class, l.Outcome, l.Error, l.TraceID, l.Digest})
		}
		require.Equal(t, [][]string{
			{"rest", "paper:note", "write", "success", "", "4bf92f3577b34da6a3ce929d0e0e4736", digestOf("{}")},
			{"mcp", "paper:nothing", "", "refused", "TOOL_NOT_FOUND", "", digestOf("{}")},
			{"mcp", "paper:echo", "read", "success", "", "", digestOf(`{"a":1}`)},
		}, seen, "the newest first")
		require.Positive(t, all[0].Tokens)
		require.Positive(t, all[0].DurationMS)
		require.Len(t, who.calls(t, "?tool=echo"), 1)
		require.Len(t, who.calls(t, "?outcome=refused"), 1)
		require.Empty(t, h.holder(t, "").calls(t, "?token_id="+who.id))
		require.NotEmpty(t, h.calls(t, "?token_id="+who.id))
	})
}

func TestMCPEvents(t *testing.T) {
	t.Parallel()
	hubs(t, func(t *testing.T, database string) {
		h := openHub(t, database, nil, mcptest.NewPaper(t, "paper"))
		h.agent(t, "reader", 100_000)
		who, other := h.holder(t, "reader"), h.holder(t, "")
		mine, all := who.follow(t, "/api/v1/events"), h.follow(t, "/api/v1/events?types=tool.called,tool.failed,upstream.down")
		s := who.speak(t, newest, nil)
		called(t, s, "paper:echo", nil)
		called(t, s, "paper:nothing", nil)
		called(t, other.speak(t, newest, nil), "paper:note", nil)

		name, data := mine.next(t)
		require.Equal(t, []any{"tool.called", "paper:echo", "reader", "success", "mcp"}, []any{name, data["tool"], data["agent_id"], data["outcome"], data["source"]})
		first := mine.id
		name, data = mine.next(t)
		require.Equal(t, []any{"tool.failed", "paper:nothing", "TOOL_NOT_FOUND"}, []any{name, data["tool"], data["error"]})

		for _, want := range []string{"paper:echo", "paper:nothing", "paper:note"} {
			_, data = all.next(t)
			require.Equal(t, want, data["tool"])
		}
		again := who.follow(t, "/api/v1/events", "Last-Event-ID", first)
		_, data = again.next(t)
		require.Equal(t, "paper:nothing", data["tool"], "the stream resumes after the last event")

		called(t, s, "paper:shred", nil)
		_, data = mine.next(t)
		require.Equal(t, "paper:shred", data["tool"], "others' calls are not the agent's to hear")

		mcptest.WriteServers(t, h.cfg.MCP.Servers)
		h.must(t, http.StatusNoContent, http.MethodPost, "/api/v1/upstreams/reload", nil)
		for name != "upstream.down" {
			name, data = all.next(t)
		}
		require.Equal(t, "paper", data["id"])
	})
}

// TestMCPStopWritesAllCharges checks the order in which the server stops: every call that it still
// responded to over HTTP is in the audit log and in the ledger after the next start.
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
		require.GreaterOrEqual(t, int64(len(trail)), answered.Load(), "every call that got a response has an audit record")
		require.Equal(t, spent(trail), next.used(t, "reader"))
		require.Zero(t, get[struct{ Reserved int64 }](t, next.client, "/api/v1/agents/reader/usage").Reserved)
	})
}
