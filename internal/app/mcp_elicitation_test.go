package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"
)

// asking adds a tool that sends a question to its caller, as the server's revision defines it,
// and returns the reply.
func (f *fake) asking(revision string) *fake {
	question := &mcp.ElicitParams{Mode: "form", Message: "shred it?", RequestedSchema: json.RawMessage(`{"type":"object","properties":{"sure":{"type":"boolean"}}}`)}
	says := func(a *mcp.ElicitResult) *mcp.CallToolResult {
		text, _ := json.Marshal(a.Content)
		return texts(a.Action + " " + string(text))
	}
	return f.tool(&mcp.Tool{Name: "ask"}, func(ctx context.Context, r *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if revision != newest {
			a, err := r.Session.Elicit(ctx, question)
			if err != nil {
				return nil, err
			}
			return says(a), nil
		}
		if a, ok := r.Params.InputResponses["q"].(*mcp.ElicitResult); ok && r.Params.RequestState == "mine" {
			return says(a), nil
		}
		return &mcp.CallToolResult{RequestState: "mine", InputRequests: mcp.InputRequestMap{"q": question}}, nil
	})
}

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
	old, modernUp := newFakeOf(t, "old", sessions).asking(sessions), newFake(t, "new").asking(newest)
	beganOld, overOld := old.held()
	beganNew, overNew := modernUp.held()
	h := openHub(t, "sqlite", nil, old, modernUp)

	for _, up := range []*fake{old, modernUp} {
		for _, revision := range []string{newest, sessions} {
			t.Run("AQuestionOfAServerOfThe"+up.id+"KindReachesAClientOf"+revision, func(t *testing.T) {
				s := h.holder(t, "").speak(t, revision, agrees())
				requireSays(t, `accept {"sure":true}`, called(t, s, up.id+":ask", nil))
				require.Equal(t, `accept {"sure":true}`, result(t, run(t, s, `return await mcp["`+up.id+`"].ask({})`, nil)), "also where code calls")
			})
			t.Run("AClientOf"+revision+"WithoutElicitationDeclinesQuestionsOfAServerOfThe"+up.id+"Kind", func(t *testing.T) {
				requireSays(t, "decline null", called(t, h.holder(t, "").speak(t, revision, nil), up.id+":ask", nil))
			})
		}
		t.Run("RESTDeclinesToAServerOfThe"+up.id+"Kind", func(t *testing.T) {
			answer := h.restCall(t, http.StatusOK, up.id+":ask", nil)
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
		answer := func(s *mcp.ClientSession, name string) *mcp.CallToolResult {
			answers := mcp.InputResponseMap{}
			for key := range asked.InputRequests {
				answers[key] = &mcp.ElicitResult{Action: "accept", Content: map[string]any{"sure": true}}
			}
			res, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: name, RequestState: asked.RequestState, InputResponses: answers})
			require.NoError(t, err)
			return res
		}
		requireFailed(t, "INVALID_ARGUMENTS", answer(thief, "new:ask"))
		requireFailed(t, "INVALID_ARGUMENTS", answer(s, "old:ask"))
		requireSays(t, `accept {"sure":true}`, answer(s, "new:ask"))
		requireFailed(t, "INVALID_ARGUMENTS", answer(s, "new:ask"))
	})

	for _, revision := range []string{newest, sessions} {
		for _, up := range []struct {
			*fake
			began chan struct{}
			over  chan error
		}{{old, beganOld, overOld}, {modernUp, beganNew, overNew}} {
			t.Run("ProgressAndCancellationPassBetweenAServerOfThe"+up.id+"KindAndAClientOf"+revision, func(t *testing.T) {
				told := make(chan *mcp.ProgressNotificationParams, 10)
				who := h.holder(t, "")
				s := who.speak(t, revision, &mcp.ClientOptions{ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
					told <- r.Params
				}})
				ctx, cancel := context.WithCancel(t.Context())
				params := &mcp.CallToolParams{Name: up.id + ":held"}
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
