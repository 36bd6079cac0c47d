//go:build unix

package upstream_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/upstream"
)

func TestQuestionsOfAnOlderUpstream(t *testing.T) {
	t.Parallel()
	accept := func(context.Context, mcp.InputRequestMap) (mcp.InputResponseMap, error) {
		return mcp.InputResponseMap{"question": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"ok": true}}}, nil
	}
	forms := upstream.Capabilities{Elicitation: &mcp.ElicitationCapabilities{}}

	t.Run("GoToTheOneRequestThatRuns", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		res, err := b.Call(t.Context(), "a", "ask", nil, &upstream.CallOptions{Can: forms, Ask: accept})
		require.NoError(t, err)
		require.JSONEq(t, `{"action":"accept","content":{"ok":true}}`, textOf(t, res))
	})

	t.Run("AreDeclinedWhereTheCallerCannotBeAsked", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		require.JSONEq(t, `{"action":"decline","_meta":{"comet/reason":"the caller cannot be asked"}}`, b.call(t, "a", "ask", ""))
	})

	t.Run("AreDeclinedWhereTheFormHasReferences", func(t *testing.T) { // the answer would overflow the stack
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		res, err := b.Call(t.Context(), "a", "cycle", nil, &upstream.CallOptions{Can: forms, Ask: accept})
		require.NoError(t, err)
		require.Contains(t, textOf(t, res), "the form has references")
	})

	// called calls a tool in the background and returns its outcome. The callers of asking tools reply with their names.
	called := func(ctx context.Context, b *bench, tool, who string) <-chan string {
		out := make(chan string, 1)
		go func() {
			res, err := b.Call(ctx, "a", tool, json.RawMessage(`{"who":"`+who+`"}`), &upstream.CallOptions{
				Can: forms, Progress: func(upstream.Progress) {},
				Ask: func(_ context.Context, q mcp.InputRequestMap) (mcp.InputResponseMap, error) {
					said := q["question"].(*mcp.ElicitParams).Message
					return mcp.InputResponseMap{"question": &mcp.ElicitResult{Action: "accept", Content: map[string]any{"said": said, "by": who}}}, nil
				},
			})
			if err != nil {
				out <- err.Error()
				return
			}
			text, _ := res.Decoded()
			out <- text.Content[0].(*mcp.TextContent).Text
		}()
		return out
	}
	// lines waits until the upstream has written a number of lines.
	lines := func(t *testing.T, b *bench, n int) {
		b.await(t, "a", func(s upstream.Status) bool { return len(s.Stderr) == n })
	}

	t.Run("WaitForTheOtherRequestsAndReachTheirOwnCaller", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		slow := called(t.Context(), b, "slow", "slow")
		lines(t, b, 1)
		one := called(t.Context(), b, "ask", "one")
		lines(t, b, 2)
		two := called(t.Context(), b, "ask", "two")
		lines(t, b, 3)
		require.Equal(t, "gone", b.call(t, "a", "go", ""))
		require.Equal(t, "done", <-slow)
		for who, got := range map[string]<-chan string{"one": one, "two": two} {
			require.JSONEq(t, `{"action":"accept","content":{"said":"sure`+who+`?","by":"`+who+`"}}`, <-got)
		}
	})

	t.Run("StopTheClockOfTheRequest", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		b.ready(t, "a")
		const timeout = 500 * time.Millisecond
		res, err := b.Call(t.Context(), "a", "ask", nil, &upstream.CallOptions{Timeout: timeout, Can: forms, Ask: func(ctx context.Context, q mcp.InputRequestMap) (mcp.InputResponseMap, error) {
			late := time.NewTimer(2 * timeout)
			defer late.Stop()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-late.C:
				return accept(ctx, q)
			}
		}})
		require.NoError(t, err)
		require.Contains(t, textOf(t, res), "accept")
	})

	t.Run("EndWithTheSession", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		asked := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			_, err := b.Call(t.Context(), "a", "ask", nil, &upstream.CallOptions{Can: forms, Ask: func(ctx context.Context, _ mcp.InputRequestMap) (mcp.InputResponseMap, error) {
				close(asked)
				<-ctx.Done()
				return nil, ctx.Err()
			}})
			done <- err
		}()
		<-asked
		require.NoError(t, b.Restart("a"))
		requireReason(t, upstream.ReasonDown, <-done)
		b.ready(t, "a")
	})
}
