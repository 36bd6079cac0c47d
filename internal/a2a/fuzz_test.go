package a2a

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/stretchr/testify/require"

	"comet/internal/workflow"
	"comet/models"
	rows "comet/store/a2a"
)

// FuzzRequest: a request of a client is converted to valid JSON, and an accepted message can be stored and read again.
func FuzzRequest(f *testing.F) {
	for _, seed := range []string{
		`{"message":{"message_id":"m","role":"ROLE_USER","parts":[{"text":"x"},{"raw":"AP8"},{"url":"u","media_type":"a/b"},{"data":{"a_b":[1e400]}}],"metadata":{"x_y":1}}}`,
		`{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"file","file":{"bytes":"AA"}},{"kind":"data","data":7}]}}`,
		`{"message":{"messageId":"m","role":"ROLE_USER","parts":[null]}}`, `[[[[[[[[[[]]]]]]]]]]`, `{"a_":{"_b":{"__":null}}}`, `{"message":null}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if !json.Valid(body) {
			return
		}
		converted := camelCase(body, 0)
		require.True(t, json.Valid(converted), "%s", converted)
		accepts(t, "SendMessage", converted, false)
		if _, old, err := fromLegacy("message/send", body); err == nil {
			accepts(t, "SendMessage", old, true)
		}
	})
}

// accepts decodes the parameters of an operation as the server does, up to the first use of stored state.
func accepts(t *testing.T, operation string, params []byte, legacy bool) {
	t.Helper()
	var err error
	switch operation {
	case "SendMessage", "SendStreamingMessage":
		var req sendRequest
		if req, err = decode[sendRequest](params); err == nil {
			acceptsMessage(t, req, legacy)
		}
	case "GetTask", "CancelTask", "SubscribeToTask":
		_, err = decode[taskRequest](params)
	case "ListTasks":
		var req listRequest
		if req, err = decode[listRequest](params); err == nil {
			var q rows.Query
			if q, err = req.query(models.Principal{TokenID: "t"}); err == nil {
				require.LessOrEqual(t, q.Limit, maxPageSize)
			}
		}
	case "GetExtendedAgentCard":
		_, err = decode[cardRequest](params)
	case "CreateTaskPushNotificationConfig":
		_, err = decode[createPushRequest](params)
	default:
		_, err = decode[pushRequest](params)
	}
	if err != nil {
		describes(t, err)
	}
}

// describes requires an error of the client, with a text.
func describes(t *testing.T, err error) {
	t.Helper()
	f, text := describe(err)
	require.NotEqual(t, http.StatusInternalServerError, f.status, "%v", err)
	require.NotEmpty(t, text)
}

// acceptsMessage reads a message as the start of a task, of a workflow and as a decision. A valid one that is written in either
// version and read again is the same message.
func acceptsMessage(t *testing.T, req sendRequest, legacy bool) {
	t.Helper()
	m, err := readMessage(req)
	if err != nil {
		describes(t, err)
		return
	}
	paused := workflow.View{CheckpointID: "cp_1", Options: []string{"approve", "reject", "raise", "retry", "accept"}}
	for _, read := range []func() error{
		func() error { _, err := m.parameters(); return err },
		func() error { _, err := m.workflowRequest(req); return err },
		func() error { _, err := m.workflowDraft("stored"); return err },
		func() error { _, err := m.workflowDraft(""); return err },
		func() error { _, err := m.decision(paused); return err },
		func() error { _, err := m.budget(req.Metadata); return err },
	} {
		if err := read(); err != nil {
			describes(t, err)
		}
	}
	text, err := json.Marshal(m.Message)
	require.NoError(t, err)
	if legacy {
		text = asLegacy(t, m.Message)
	}
	again := sendRequest{Message: text, Tenant: req.Tenant, Metadata: req.Metadata}
	if legacy {
		params, err := json.Marshal(map[string]any{"message": json.RawMessage(text)})
		require.NoError(t, err)
		_, converted, err := fromLegacy("message/send", params)
		require.NoError(t, err, "%s", text)
		again, err = decode[sendRequest](converted)
		require.NoError(t, err)
	}
	second, err := readMessage(again)
	require.NoError(t, err, "%s", text)
	rendered, err := json.Marshal(second.Message)
	require.NoError(t, err)
	if legacy {
		rendered = asLegacy(t, second.Message)
	} else {
		require.Equal(t, m.digest, second.digest)
	}
	require.Equal(t, string(text), string(rendered))
}

func asLegacy(t *testing.T, m *a2a.Message) []byte {
	t.Helper()
	text, err := json.Marshal(toLegacy(m))
	require.NoError(t, err)
	return text
}

// FuzzRPC: a body of JSON-RPC, in either version, has a valid id and parameters, or an error that is the client's.
func FuzzRPC(f *testing.F) {
	for _, seed := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"decision":"raise","budget":7}}],"metadata":{"workflow":"w","budget":9}}}}`,
		`{"jsonrpc":"2.0","id":"x","method":"SendMessage","params":{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"data":{"workflow":{"tasks":[{"id":"a","tool":"t:x"}]}}}],"metadata":{"capability":"execute_workflow"}}}}`,
		`{"jsonrpc":"2.0","id":1,"method":"message/send","params":{"message":{"kind":"message","messageId":"m","role":"user","parts":[{"kind":"text","text":"approve this"},{"kind":"file","file":{"uri":"u"}}]}}}`,
		`{"jsonrpc":"2.0","id":null,"method":"ListTasks","params":{"pageSize":1,"pageToken":"MS4yLng","statusTimestampAfter":"2026-01-10T15:30:00Z"}}`,
		`{"jsonrpc":"2.0","id":-1,"method":"tasks/pushNotificationConfig/set","params":{"taskId":"t","pushNotificationConfig":{"url":"u"}}}`, `{"jsonrpc":"2.0"}`, `[]`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var req rpcRequest
		id, err := req.read(body)
		require.True(t, json.Valid(id), "%s", id)
		if err != nil {
			describes(t, err)
			return
		}
		accepts(t, req.Method, camelCase(req.Params, 0), false)
		operation, params, err := fromLegacy(req.Method, req.Params)
		if err != nil {
			describes(t, err)
			return
		}
		accepts(t, operation, params, true)
	})
}

// FuzzREST: a request of HTTP+JSON has an operation and parameters, or an error that is the client's.
func FuzzREST(f *testing.F) {
	f.Add("POST", "message:send", "", []byte(`{"message":{"message_id":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"history_length":1}}`))
	f.Add("GET", "say-1/tasks", "pageSize=1&status=TASK_STATE_WORKING&includeArtifacts=true", []byte(""))
	f.Add("GET", "tasks/x:subscribe", "historyLength=x", []byte(""))
	f.Add("DELETE", "tasks/x/pushNotificationConfigs/y", "%zz", []byte("{"))
	f.Add("PUT", "tasks/", "", []byte("[]"))
	h := &Handler{service: &service{opts: (*Options)(nil).orDefaults()}}
	f.Fuzz(func(t *testing.T, method, path, query string, body []byte) {
		w := httptest.NewRecorder()
		r := &http.Request{Method: method, URL: &url.URL{Path: restPath + "/" + path, RawQuery: query}, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body))}
		rt, tenant, err := findRoute(w, r, path)
		if err == nil {
			var params []byte
			if params, err = h.restParams(w, r, rt, tenant); err == nil {
				require.True(t, json.Valid(params), "%s", params)
				accepts(t, rt.operation, params, false)
			}
		}
		if err != nil {
			describes(t, err)
		}
	})
}

// FuzzResult: any result has parts that can be encoded, in both versions.
func FuzzResult(f *testing.F) {
	for _, seed := range []string{`{"files":[{"name":"a","bytes":"AA"}],"text":"x"}`, `{"message":"m"}`, `[1]`, `{"a":1}`, "text", "\xff", `{"text":1}`, `{"files":null,"data":1}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, output []byte) {
		parts := resultParts(output)
		require.NotEmpty(t, parts)
		_, err := json.Marshal(parts)
		require.NoError(t, err)
		_, err = json.Marshal(toLegacy(&a2a.Artifact{Parts: parts}))
		require.NoError(t, err)
		_, _ = messageOf(output)
	})
}

// FuzzPlace: an id of an event that is accepted names the same place again.
func FuzzPlace(f *testing.F) {
	for _, seed := range []string{"7", "7.1.5", "7.0.0.3", "7.1", "x", "-1", "1.1.1.1.1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		p, ok := readPlace(id)
		if !ok {
			return
		}
		if p.sent == 0 && p.version == 0 {
			p.attempt = 0 // it means nothing without a part of the result
		}
		again, ok := readPlace(p.String())
		require.True(t, ok)
		require.Equal(t, p, again)
	})
}
