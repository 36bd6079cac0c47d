package mcp

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

type askFunc = func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)

// asking is a call that asks, and answers with what it was told.
func asking(ctx context.Context, ask askFunc) (*mcp.CallToolResult, error) {
	got, err := ask(ctx, &mcp.ElicitParams{Message: "which?"})
	if err != nil {
		return nil, err
	}
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: got.Action}}}, nil
}

func TestParkedCalls(t *testing.T) {
	t.Parallel()
	yes := mcp.InputResponseMap{questionName: &mcp.ElicitResult{Action: "accept"}}
	begin := func(t *testing.T, p *suspendedCalls, token string) (state string) {
		t.Helper()
		res, err := p.next(t.Context(), p.start(t.Context(), token, "fs:write", asking))
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

	t.Run("go on with their client's answer", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		res, err := p.resume(t.Context(), "token", "fs:write", begin(t, p, "token"), yes)
		require.NoError(t, err)
		require.Equal(t, "accept", res.Content[0].(*mcp.TextContent).Text)
	})

	t.Run("are their token's and their tool's own, and answered once", func(t *testing.T) {
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

	t.Run("one token takes a part of the places", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		for range maxSuspendedPerToken {
			begin(t, p, "token")
		}
		_, err := p.next(t.Context(), p.start(t.Context(), "token", "fs:write", asking))
		require.ErrorContains(t, err, "too many")
		begin(t, p, "other")
	})

	t.Run("a stop ends them and waits for their end", func(t *testing.T) {
		t.Parallel()
		p := newSuspendedCalls(time.Now)
		var ended sync.WaitGroup
		ended.Add(2)
		begin(t, p, "token")
		for range 2 { // of whose clients nobody has heard
			p.start(t.Context(), "token", "fs:write", func(ctx context.Context, _ askFunc) (*mcp.CallToolResult, error) {
				<-ctx.Done()
				ended.Done()
				return nil, ctx.Err()
			})
		}
		p.stop()
		ended.Wait()
		require.Empty(t, p.all)
	})

	t.Run("a client that goes while it waits ends its call", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		over := make(chan struct{})
		_, err := p.next(gone, p.start(t.Context(), "token", "fs:write", func(ctx context.Context, _ askFunc) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			close(over)
			return nil, ctx.Err()
		}))
		require.ErrorIs(t, err, context.Canceled)
		<-over
	})
}
