package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit/mcptest"
)

// agrees returns a client that accepts that question.
func agrees() *mcp.ClientOptions {
	return &mcp.ClientOptions{ElicitationHandler: func(_ context.Context, r *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
		if r.Params.Message != "shred it?" {
			return &mcp.ElicitResult{Action: "cancel"}, nil
		}
		return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"sure": true}}, nil
	}}
}

func TestMCPElicitation(t *testing.T) {
	t.Parallel()
	old, modernUp := mcptest.NewOf(t, "old", sessions).Asking(sessions), mcptest.New(t, "new").Asking(newest)
	beganOld, overOld := old.Held()
	beganNew, overNew := modernUp.Held()
	h := openHub(t, "sqlite", nil, old, modernUp)

	for _, up := range []*mcptest.Server{old, modernUp} {
		for _, revision := range []string{newest, sessions} {
			t.Run("AQuestionOfAServerOfThe"+up.ID+"KindReachesAClientOf"+revision, func(t *testing.T) {
				s := h.holder(t, "").speak(t, revision, agrees())
				mcptest.RequireSays(t, `accept {"sure":true}`, called(t, s, up.ID+":ask", nil))
				require.Equal(t, `accept {"sure":true}`, result(t, run(t, s, `return await mcp["`+up.ID+`"].ask({})`, nil)), "also where code calls")
			})
			t.Run("AClientOf"+revision+"WithoutElicitationDeclinesQuestionsOfAServerOfThe"+up.ID+"Kind", func(t *testing.T) {
				mcptest.RequireSays(t, "decline null", called(t, h.holder(t, "").speak(t, revision, nil), up.ID+":ask", nil))
			})
		}
		t.Run("RESTDeclinesToAServerOfThe"+up.ID+"Kind", func(t *testing.T) {
			answer := h.restCall(t, http.StatusOK, up.ID+":ask", nil)
			text, err := json.Marshal(answer["content"])
			require.NoError(t, err)
			require.Contains(t, string(text), "decline")
		})
	}

	t.Run("TheReplyOfAnotherTokenIsRejected", func(t *testing.T) {
		by := func(who *issued) *mcp.ClientSession {
			opts := agrees()
			opts.MultiRoundTrip = &mcp.MultiRoundTripOptions{Disabled: true}
			return who.speak(t, newest, opts)
		}
		s, thief := by(h.holder(t, "")), by(h.holder(t, ""))
		asked := called(t, s, "new:ask", nil)
		require.NotEmpty(t, asked.RequestState)
		require.Len(t, asked.InputRequests, 1)
		answer := func(s *mcp.ClientSession, name string) (*mcp.CallToolResult, error) {
			answers := mcp.InputResponseMap{}
			for key := range asked.InputRequests {
				answers[key] = &mcp.ElicitResult{Action: "accept", Content: map[string]any{"sure": true}}
			}
			return s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, RequestState: asked.RequestState, InputResponses: answers})
		}
		requireRefused := func(_ *mcp.CallToolResult, err error) {
			t.Helper()
			var refused *jsonrpc.Error
			require.ErrorAs(t, err, &refused)
			require.EqualValues(t, jsonrpc.CodeInvalidParams, refused.Code)
		}
		requireRefused(answer(thief, "new:ask"))
		requireRefused(answer(s, "old:ask"))
		res, err := answer(s, "new:ask")
		require.NoError(t, err)
		mcptest.RequireSays(t, `accept {"sure":true}`, res)
		requireRefused(answer(s, "new:ask"))
	})

	for _, revision := range []string{newest, sessions} {
		for _, up := range []struct {
			*mcptest.Server
			began chan struct{}
			over  chan error
		}{{old, beganOld, overOld}, {modernUp, beganNew, overNew}} {
			t.Run("ProgressAndCancellationPassBetweenAServerOfThe"+up.ID+"KindAndAClientOf"+revision, func(t *testing.T) {
				told := make(chan *mcp.ProgressNotificationParams, 10)
				who := h.holder(t, "")
				s := who.speak(t, revision, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					told <- r.Params
				}})
				ctx, cancel := context.WithCancel(t.Context())
				params := &mcp.CallToolParams{Name: up.ID + ":held"}
				params.SetProgressToken("mine")
				gone := make(chan error, 1)
				go func() {
					_, err := s.CallTool(ctx, params)
					gone <- err
				}()
				<-up.began
				p := <-told
				require.Equal(t, []any{"mine", 1.0, 4.0, "a quarter"}, []any{p.ProgressToken, p.Progress, p.Total, p.Message})
				cancel()
				require.ErrorIs(t, <-gone, context.Canceled)
				require.ErrorIs(t, <-up.over, context.Canceled)
				eventually(t, func() bool {
					all := who.calls(t, "?limit=10")
					return len(all) == 1 && all[0].Error == "CANCELLED"
				}, "the trail has it")
			})
		}
	}
}
