package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/agent"
)

// theKey is one that was agreed on elsewhere.
const theKey = "a key that was agreed on"

// TestSigning: an agent whose key is required, and that has it, works and asks as any other.
func TestSigning(t *testing.T) {
	t.Parallel()

	t.Run("a worker whose lines break says what it said as another line", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		o.do(t, http.MethodPut, "/api/v1/agents/clerk/key", fmt.Sprintf(`{"key":%q,"required":true}`, theKey))
		b := newBridge(t, o.url, 1500)
		var log bytes.Buffer
		for i := range 600 {
			_, _ = fmt.Fprintf(&log, "%d|\n", i%7)
		}
		o.clerk(t, b.url, &agent.Options{Key: theKey}, func(_ context.Context, w *agent.Work) (agent.Result, error) {
			_, err := w.Write(log.Bytes())
			return agent.Result{Output: strings.Repeat("done ", 500)}, err
		})
		c := o.asker(t)
		reply, err := c.AskLine(t.Context(), &agent.LineRequest{Capability: "write", Parameters: json.RawMessage(`{"title":"a text as long as there is room for in the line, which the signature takes nothing of, for it stands beside"}`)})
		require.NoError(t, err)
		reply, err = c.AwaitLine(t.Context(), reply, nil)
		require.NoError(t, err)
		require.True(t, reply.Succeeded, "%+v", reply)
		require.Equal(t, strings.Repeat("done ", 500), reply.Output)
		require.Equal(t, log.String(), string(o.do(t, http.MethodGet, "/api/v1/tasks/"+reply.Task.String()+"/output?stream=log", "")))
		require.Eventually(t, func() bool { return b.lines.Load() > 1 }, minute, soon, "a line has broken")
	})

	t.Run("a worker with another key, or with none, is sent away", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		o.do(t, http.MethodPut, "/api/v1/agents/clerk/key", fmt.Sprintf(`{"key":%q,"required":true}`, theKey))
		for _, key := range []string{"", "another key than that one"} {
			a, err := agent.New(o.url, o.own, &agent.Options{Dialect: agent.DialectV5, Key: key, Client: o.http, Logger: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			a.Handle("write", nil)
			err = a.Run(t.Context())
			require.ErrorContains(t, err, "E90", "%q", key)
		}
		_, err := agent.New(o.url, o.own, &agent.Options{Key: theKey})
		require.ErrorContains(t, err, "only lines of DialectV5")
	})

	t.Run("who asks signs each time anew", func(t *testing.T) {
		t.Parallel()
		o := openOffice(t)
		o.do(t, http.MethodPut, "/api/v1/agents/clerk/key", fmt.Sprintf(`{"key":%q,"required":true}`, theKey))
		o.clerk(t, o.url, &agent.Options{Key: theKey}, func(context.Context, *agent.Work) (agent.Result, error) {
			return agent.Result{Output: strings.Repeat("long ", 1000)}, nil
		})
		c, err := agent.NewClient(o.url, o.own, o.http)
		require.NoError(t, err)
		refused, err := c.AskLine(t.Context(), &agent.LineRequest{From: "W1", Capability: "write"})
		require.NoError(t, err)
		require.Equal(t, "E90", refused.Code, "%+v", refused)

		c.SignWith(theKey)
		for range 3 { // the same words, which are another line each time
			reply, err := c.AskLine(t.Context(), &agent.LineRequest{From: "W1", Capability: "write"})
			require.NoError(t, err)
			require.NotEqual(t, "E", reply.Type, "%+v", reply)
			for range 2 {
				again, err := c.AwaitLine(t.Context(), reply, nil)
				require.NoError(t, err)
				require.Equal(t, strings.Repeat("long ", 1000), again.Output, "%+v", again)
			}
		}
		answers, _, err := c.SayLines(t.Context(), 0, "M1|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W*", "no line")
		require.NoError(t, err)
		require.Contains(t, answers[0], "|S|", "a line of one's own is signed as it is")
	})
}
