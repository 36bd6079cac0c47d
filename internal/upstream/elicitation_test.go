//go:build unix

package upstream_test

import (
	"context"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/upstream"
)

func TestQuestionsOfAnOlderUpstream(t *testing.T) {
	t.Parallel()
	accept := func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error) {
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"ok": true}}, nil
	}

	t.Run("GoToTheOneRequestThatRuns", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		res, err := b.Call(t.Context(), "a", "ask", nil, &upstream.CallOptions{Elicit: accept})
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
		res, err := b.Call(t.Context(), "a", "cycle", nil, &upstream.CallOptions{Elicit: accept})
		require.NoError(t, err)
		require.Contains(t, textOf(t, res), "the form has references")
	})

	t.Run("AreDeclinedWhereSeveralRequestsRun", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = b.Call(ctx, "a", "held", nil, nil)
		}()
		b.await(t, "a", func(s upstream.Status) bool { return len(s.Stderr) == 1 })
		res, err := b.Call(t.Context(), "a", "ask", nil, &upstream.CallOptions{Elicit: accept})
		require.NoError(t, err)
		require.Contains(t, textOf(t, res), "several requests are running, and the question does not say to which of them it belongs")
		cancel()
		<-done
	})

	t.Run("StopTheClockOfTheRequest", func(t *testing.T) {
		t.Parallel()
		b := setup(t, upstream.Options{}, fakeServer("a", "plain"))
		b.ready(t, "a")
		const timeout = 500 * time.Millisecond
		res, err := b.Call(t.Context(), "a", "ask", nil, &upstream.CallOptions{Timeout: timeout, Elicit: func(ctx context.Context, p *mcp.ElicitParams) (*mcp.ElicitResult, error) {
			late := time.NewTimer(2 * timeout)
			defer late.Stop()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-late.C:
				return accept(ctx, p)
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
			_, err := b.Call(t.Context(), "a", "ask", nil, &upstream.CallOptions{Elicit: func(ctx context.Context, _ *mcp.ElicitParams) (*mcp.ElicitResult, error) {
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
