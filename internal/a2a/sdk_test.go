package a2a_test

import (
	"context"
	"net/http"
	"testing"

	sdk "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
)

// bearer adds a token to requests.
type bearer struct {
	token string
	http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.RoundTripper.RoundTrip(r)
}

// requireFailure requires an error of A2A. Over JSON-RPC this version of the SDK cannot decode it: it expects an object in
// error.data, where the specification has a list.
func requireFailure(t *testing.T, transport sdk.TransportProtocol, err, want error) {
	t.Helper()
	if transport == sdk.TransportProtocolJSONRPC {
		require.Error(t, err)
		return
	}
	require.ErrorIs(t, err, want)
}

// TestSDK: the client of the official SDK discovers, sends, replies, streams, lists and cancels.
func TestSDK(t *testing.T) {
	t.Parallel()
	for name, transport := range map[string]sdk.TransportProtocol{"JSON-RPC": sdk.TransportProtocolJSONRPC, "HTTP+JSON": sdk.TransportProtocolHTTPJSON} {
		onDatabases(t, name, func(t *testing.T, h *harness) {
			h.worker(t, "ask-1", h.asks("which year?"), "ask")
			h.worker(t, "slow-1", func(context.Context, orchestrator.TaskWithInput) {}, "slow")
			connections := &http.Client{Transport: bearer{h.Token, h.HTTP.Transport}}
			card, err := agentcard.NewResolver(connections).Resolve(t.Context(), h.server.URL)
			require.NoError(t, err)
			client, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []sdk.TransportProtocol{transport}}),
				a2aclient.WithJSONRPCTransport(connections), a2aclient.WithRESTTransport(connections))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, client.Destroy()) })

			message := func(text, capability string, about sdk.TaskInfoProvider) *sdk.SendMessageRequest {
				m := sdk.NewMessage(sdk.MessageRoleUser, sdk.NewTextPart(text))
				if about != nil {
					m = sdk.NewMessageForTask(sdk.MessageRoleUser, about, sdk.NewTextPart(text))
				}
				m.SetMeta("capability", capability)
				return &sdk.SendMessageRequest{Message: m}
			}
			sent, err := client.SendMessage(t.Context(), message("report", "ask", nil))
			require.NoError(t, err)
			asked, isTask := sent.(*sdk.Task)
			require.True(t, isTask)
			require.Equal(t, sdk.TaskStateInputRequired, asked.Status.State)
			require.Equal(t, "which year?", asked.Status.Message.Parts[0].Text())

			var last sdk.Event
			text := ""
			for e, err := range client.SendStreamingMessage(t.Context(), message("2026", "", asked)) {
				require.NoError(t, err)
				switch v := e.(type) {
				case *sdk.TaskArtifactUpdateEvent:
					text += v.Artifact.Parts[0].Text()
				case *sdk.Task:
					if len(v.Artifacts) > 0 {
						text += v.Artifacts[0].Parts[0].Text()
					}
				}
				last = e
			}
			require.Equal(t, "you said 2026", text)
			require.Equal(t, asked.ID, last.TaskInfo().TaskID)
			done, err := client.GetTask(t.Context(), &sdk.GetTaskRequest{ID: asked.ID})
			require.NoError(t, err)
			require.Equal(t, sdk.TaskStateCompleted, done.Status.State)
			require.Len(t, done.History, 3)

			slow := message("wait", "slow", nil)
			slow.Config = &sdk.SendMessageConfig{ReturnImmediately: true}
			sent, err = client.SendMessage(t.Context(), slow)
			require.NoError(t, err)
			id := sent.TaskInfo().TaskID
			canceled, err := client.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: id})
			require.NoError(t, err)
			require.Equal(t, sdk.TaskStateCanceled, canceled.Status.State)
			_, err = client.CancelTask(t.Context(), &sdk.CancelTaskRequest{ID: id})
			requireFailure(t, transport, err, sdk.ErrTaskNotCancelable)
			_, err = client.GetTask(t.Context(), &sdk.GetTaskRequest{ID: "none"})
			requireFailure(t, transport, err, sdk.ErrTaskNotFound)
			for _, err := range client.SubscribeToTask(t.Context(), &sdk.SubscribeToTaskRequest{ID: id}) {
				require.Error(t, err)
			}
			list, err := client.ListTasks(t.Context(), &sdk.ListTasksRequest{ContextID: asked.ContextID, Status: sdk.TaskStateCompleted})
			require.NoError(t, err)
			require.Equal(t, []any{1, asked.ID}, []any{list.TotalSize, list.Tasks[0].ID})
			extended, err := client.GetExtendedAgentCard(t.Context(), &sdk.GetExtendedAgentCardRequest{})
			require.NoError(t, err)
			require.Greater(t, len(extended.Skills), 1)
		})
	}
}
