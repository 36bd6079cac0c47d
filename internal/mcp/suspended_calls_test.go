package mcp

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// asking is a call that asks a question and returns the action of the reply.
func asking(ctx context.Context, ask askFunc) (*mcp.CallToolResult, error) {
	got, err := ask(ctx, &mcp.ElicitParams{Message: "which?"})
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: got.Action}}}, nil
}

func TestSuspendedCalls(t *testing.T) {
	t.Parallel()
	yes := mcp.InputResponseMap{questionName: &mcp.ElicitResult{Action: "accept"}}
	begin := func(t *testing.T, p *suspendedCalls, token string) (state string) {
		t.Helper()
		res, err := p.run(t.Context(), token, "fs:write", asking)
		require.NoError(t, err)
		require.NotEmpty(t, res.InputRequests)
		return res.RequestState
	}
	setup := func(t *testing.T) *suspendedCalls {
		t.Helper()
		p := newSuspendedCalls(time.Now)
		t.Cleanup(p.stop)
		return p
	}

	t.Run("continue with the reply of their client", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		res, err := p.resume(t.Context(), "token", "fs:write", begin(t, p, "token"), yes)
		require.NoError(t, err)
		require.Equal(t, "accept", res.Content[0].(*mcp.TextContent).Text)
	})

	t.Run("accept one reply, of their token and for their tool", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		state := begin(t, p, "token")
		_, err := p.resume(t.Context(), "other", "fs:write", state, yes)
		require.ErrorContains(t, err, "no call waits")
		_, err = p.resume(t.Context(), "token", "fs:read", state, yes)
		require.ErrorContains(t, err, "no call waits")
		_, err = p.resume(t.Context(), "token", "fs:write", state, yes)
		require.NoError(t, err)
		_, err = p.resume(t.Context(), "token", "fs:write", state, yes)
		require.ErrorContains(t, err, "no call waits")
	})

	t.Run("are limited per token", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		for range maxSuspendedPerToken {
			begin(t, p, "token")
		}
		_, err := p.run(t.Context(), "token", "fs:write", asking)
		require.ErrorContains(t, err, "too many")
		begin(t, p, "other")
	})

	t.Run("end when the server stops", func(t *testing.T) {
		t.Parallel()
		p := newSuspendedCalls(time.Now)
		var ended sync.WaitGroup
		ended.Add(2)
		begin(t, p, "token")
		for range 2 { // they have not asked yet
			started := make(chan struct{})
			go func() {
				_, _ = p.run(t.Context(), "token", "fs:write", func(ctx context.Context, _ askFunc) (*mcp.CallToolResult, error) {
					close(started)
					<-ctx.Done()
					ended.Done()
					return nil, ctx.Err()
				})
			}()
			<-started
		}
		p.stop()
		ended.Wait()
	})

	t.Run("are cancelled when their client disconnects before the question", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		over := make(chan struct{})
		_, err := p.run(gone, "token", "fs:write", func(ctx context.Context, _ askFunc) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			close(over)
			return nil, ctx.Err()
		})
		require.ErrorIs(t, err, context.Canceled)
		<-over
	})
}
