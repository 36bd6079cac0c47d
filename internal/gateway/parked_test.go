package gateway

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/upstream"
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
	yes := mcp.InputResponseMap{askName: &mcp.ElicitResult{Action: "accept"}}
	begin := func(t *testing.T, p *parked, token string) (state string) {
		t.Helper()
		res, err := p.next(t.Context(), p.run(t.Context(), token, "fs:write", asking))
		require.NoError(t, err)
		require.NotEmpty(t, res.InputRequests)
		return res.RequestState
	}
	setup := func(t *testing.T) *parked {
		t.Helper()
		p := newParked(time.Now)
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
		for range maxParkedEach {
			begin(t, p, "token")
		}
		_, err := p.next(t.Context(), p.run(t.Context(), "token", "fs:write", asking))
		require.ErrorContains(t, err, "too many")
		begin(t, p, "other")
	})

	t.Run("a stop ends them and waits for their end", func(t *testing.T) {
		t.Parallel()
		p := newParked(time.Now)
		var ended sync.WaitGroup
		ended.Add(2)
		begin(t, p, "token")
		for range 2 { // of whose clients nobody has heard
			p.run(t.Context(), "token", "fs:write", func(ctx context.Context, _ askFunc) (*mcp.CallToolResult, error) {
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
		_, err := p.next(gone, p.run(t.Context(), "token", "fs:write", func(ctx context.Context, _ askFunc) (*mcp.CallToolResult, error) {
			<-ctx.Done()
			close(over)
			return nil, ctx.Err()
		}))
		require.ErrorIs(t, err, context.Canceled)
		<-over
	})
}

func TestLatest(t *testing.T) {
	t.Parallel()
	var told []float64
	begun, goOn := make(chan struct{}), make(chan struct{})
	l := tellLatest(func(p upstream.Progress) {
		told = append(told, p.Progress)
		if len(told) == 1 {
			close(begun)
			<-goOn
		}
	})
	l.put(upstream.Progress{Progress: 1})
	<-begun
	for n := range 100 { // nobody is waited for
		l.put(upstream.Progress{Progress: float64(n)})
	}
	close(goOn)
	l.close()
	require.Equal(t, []float64{1, 99}, told, "the last word is told")
	l.put(upstream.Progress{Progress: 7}) // somebody who comes late hurts nobody
}

func TestUnderway(t *testing.T) {
	t.Parallel()
	u := &underway{tasks: map[string]map[int]context.CancelFunc{}}
	begin := func(task string, attempt int) context.Context {
		ctx, cancel := context.WithCancel(t.Context())
		u.add(task, attempt, cancel)
		return ctx
	}
	first, second, other := begin("t", 1), begin("t", 2), begin("o", 1)
	u.end("t", 1)
	require.Error(t, first.Err())
	require.NoError(t, second.Err(), "the end of an attempt is not that of the next")
	require.False(t, u.cancel("nobody's", 0), "it is for another replica")
	require.True(t, u.cancel("t", 2))
	require.Error(t, second.Err())
	require.NoError(t, other.Err())
	u.end("t", 2)
	u.end("o", 1)
	require.Empty(t, u.tasks)
}
