package mcp

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/tools"
	"comet/models"
)

// asking is a call that asks a question and returns the action of the reply.
func asking(ctx context.Context, ask askFunc) (any, error) {
	got, err := ask(ctx, mcp.InputRequestMap{"which": &mcp.ElicitParams{Message: "which?"}, "why": &mcp.ElicitParams{Message: "why?"}})
	if err != nil {
		return nil, err
	}
	return got["which"].(*mcp.ElicitResult).Action + got["why"].(*mcp.ElicitResult).Action, nil
}

// writeBy is a call of a token.
func writeBy(token string) clientRequest {
	return clientRequest{by: tools.Caller{Principal: models.Principal{TokenID: token}}, name: "fs:write"}
}

func TestSuspendedCalls(t *testing.T) {
	t.Parallel()
	yes := mcp.InputResponseMap{"which": &mcp.ElicitResult{Action: "accept"}, "why": &mcp.ElicitResult{Action: "decline"}}
	begin := func(t *testing.T, p *suspendedCalls, token string) (state string) {
		t.Helper()
		out := p.run(t.Context(), writeBy(token), asking)
		require.NoError(t, out.err)
		require.Equal(t, mcp.InputRequestMap{"which": &mcp.ElicitParams{Message: "which?"}, "why": &mcp.ElicitParams{Message: "why?"}}, out.questions)
		return out.state
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
		out := p.resume(t.Context(), "token", "fs:write", begin(t, p, "token"), yes)
		require.NoError(t, out.err)
		require.Equal(t, "acceptdecline", out.res)
	})

	t.Run("accept one reply, of their token and for their tool", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		state := begin(t, p, "token")
		for _, by := range [][]string{{"other", "fs:write"}, {"token", "fs:read"}, {"token", "fs:write"}, {"token", "fs:write"}} {
			out := p.resume(t.Context(), by[0], by[1], state, yes)
			if out.err == nil {
				require.Equal(t, []string{"token", "fs:write"}, by)
				state += "used"
				continue
			}
			var refused *jsonrpc.Error
			require.ErrorAs(t, out.err, &refused)
			require.EqualValues(t, jsonrpc.CodeInvalidParams, refused.Code)
			require.Contains(t, refused.Message, "no call waits for this requestState: it has its reply, has waited longer than 5 minutes, or")
		}
		require.Contains(t, state, "used")
	})

	t.Run("are limited per token", func(t *testing.T) {
		t.Parallel()
		p := setup(t)
		for range maxSuspendedPerToken {
			begin(t, p, "token")
		}
		require.ErrorContains(t, p.run(t.Context(), writeBy("token"), asking).err, "too many")
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
				_ = p.run(t.Context(), writeBy("token"), func(ctx context.Context, _ askFunc) (any, error) {
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
		out := p.run(gone, writeBy("token"), func(ctx context.Context, _ askFunc) (any, error) {
			<-ctx.Done()
			close(over)
			return nil, ctx.Err()
		})
		require.ErrorIs(t, out.err, context.Canceled)
		<-over
	})
}
