package a2a_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
)

// TestVersion03: version 0.3 has other names, and kinds.
func TestVersion03(t *testing.T) {
	t.Parallel()
	call := func(t *testing.T, h *harness, method, params string) (result map[string]any, code int) {
		t.Helper()
		var out struct {
			Result map[string]any
			Error  struct{ Code int }
		}
		h.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`).Decode(t, http.StatusOK, &out)
		return out.Result, out.Error.Code
	}
	message := func(id, capability, parts string) string {
		return `{"message":{"kind":"message","messageId":"` + id + `","role":"user","parts":[` + parts + `],"metadata":{"capability":"` + capability + `"}}}`
	}
	onDatabases(t, "tour", func(t *testing.T, h *harness) {
		h.worker(t, "echo-1", func(ctx context.Context, o orchestrator.TaskWithInput) {
			var in map[string]any
			_ = json.Unmarshal(o.Input.Parameters, &in)
			delete(in, "message_id")
			out, _ := json.Marshal(in)
			_, _ = h.Complete(ctx, "echo-1", o.Task.ID, orchestrator.Result{Output: out})
		}, "echo")
		parts := `{"kind":"text","text":"hello"},{"kind":"data","data":{"n":1}},{"kind":"file","file":{"name":"a","mimeType":"image/png","bytes":"AP8="}},{"kind":"file","file":{"mimeType":"image/png","uri":"https://example.com"}}`
		got, _ := call(t, h, "message/send", message("m-1", "echo", parts))
		require.Equal(t, "task", got["kind"])
		require.Equal(t, "completed", got["status"].(map[string]any)["state"])
		text, err := json.Marshal(got["artifacts"].([]any)[0].(map[string]any)["parts"])
		require.NoError(t, err)
		require.JSONEq(t, `[`+parts+`]`, string(text))
		history := got["history"].([]any)[0].(map[string]any)
		require.Equal(t, []any{"message", "user"}, []any{history["kind"], history["role"]})
		id := `{"id":"` + got["id"].(string) + `"}`
		again, _ := call(t, h, "tasks/get", id)
		require.Equal(t, got, again)
		_, code := call(t, h, "tasks/cancel", id)
		require.Equal(t, -32002, code)
		_, code = call(t, h, "tasks/resubscribe", id)
		require.Equal(t, -32004, code)
		_, code = call(t, h, "GetTask", id)
		require.Equal(t, -32601, code)
		_, code = call(t, h, "message/send", `{}`)
		require.Equal(t, -32602, code)
		resp := h.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,"method":"message/send","params":`+message("m-2", "echo", `{"kind":"text","text":"a"},{"text":"b"}`)+`}`)
		require.Contains(t, resp.String(), `"message.parts[1].kind must be text, file or data in version 0.3"`)
		_, code = call(t, h, "tasks/pushNotificationConfig/get", id)
		require.Equal(t, -32001, code)
		c, _ := call(t, h, "agent/getAuthenticatedExtendedCard", `{}`)
		require.Equal(t, "0.3.0", c["protocolVersion"])
	})
	onDatabases(t, "blocking", func(t *testing.T, h *harness) {
		h.worker(t, "slow-1", func(context.Context, orchestrator.TaskWithInput) {}, "slow")
		params := strings.TrimSuffix(message("m-1", "slow", `{"kind":"text","text":"hello"}`), "}") + `,"configuration":{"blocking":false,"historyLength":0}}`
		got, _ := call(t, h, "message/send", params)
		require.Contains(t, []any{"submitted", "working"}, got["status"].(map[string]any)["state"])
		require.NotContains(t, got, "history")
		canceled, _ := call(t, h, "tasks/cancel", `{"id":"`+got["id"].(string)+`"}`)
		require.Equal(t, "canceled", canceled["status"].(map[string]any)["state"])
	})
	onDatabases(t, "stream and a question", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("what?"), "ask")
		asked, _ := call(t, h, "message/send", message("m-1", "ask", `{"kind":"text","text":"hello"}`))
		require.Equal(t, "input-required", asked["status"].(map[string]any)["state"])
		resp, err := h.Open(t.Context(), http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{"message":{"kind":"message","messageId":"m-2","role":"user","taskId":"`+asked["id"].(string)+`","parts":[{"kind":"data","data":{"x":1}}]}}}`)
		require.NoError(t, err)
		s := rawEvents(t, resp)
		require.Contains(t, s[0], `"kind":"task"`)
		last := s[len(s)-1]
		if len(s) > 1 {
			require.Contains(t, last, `"kind":"status-update"`)
			require.Contains(t, last, `"final":true`)
			require.Contains(t, s[len(s)-2], `"kind":"artifact-update"`)
		}
		require.Contains(t, last, `"state":"completed"`)
		done, _ := call(t, h, "tasks/get", `{"id":"`+asked["id"].(string)+`"}`)
		require.Contains(t, done["artifacts"].([]any)[0].(map[string]any)["parts"].([]any)[0].(map[string]any)["text"], `{"x":1}`)
	})
}
