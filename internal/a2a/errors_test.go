package a2a_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
)

// TestErrorTexts: errors say what is wrong, where and what to do, in the same words in both bindings.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	onDatabases(t, "of operations", func(t *testing.T, h *harness) {
		h.worker(t, "echo-1", h.returns("done"), "echo")
		h.worker(t, "slow-1", func(context.Context, orchestrator.TaskWithInput) {}, "slow")
		done := send(t, h.Client, text("m-1", "x", "echo", "ours", ""))
		open := send(t, h.Client, text("m-2", "x", "slow", "", ""), returnImmediately)
		other := h.client(t, "", models.ScopeMessagesSend)
		reader := h.client(t, "", models.ScopeTasksRead)
		message := func(id, taskID, contextID string) string {
			return `{"message":` + text(id, "x", "echo", contextID, taskID) + `}`
		}
		for _, c := range []struct {
			by             *testkit.Client
			method, params string
			code           int
			text           string
		}{
			{h.Client, "GetTask", `{"id":"none"}`, -32001, `there is no task "none"`},
			{h.Client, "GetTask", `{}`, -32602, `the id of the task is required`},
			{h.Client, "GetTask", `{"id":"` + done.ID + `","historyLength":-1}`, -32602, `historyLength must not be negative`},
			{other, "GetTask", `{"id":"` + done.ID + `"}`, -32001, `there is no task "` + done.ID + `"`},
			{other, "CancelTask", `{"id":"` + open.ID + `"}`, -32001, `there is no task "` + open.ID + `"`},
			{h.Client, "CancelTask", `{"id":"` + done.ID + `"}`, -32002, `the task ` + done.ID + ` has ended`},
			{h.Client, "SubscribeToTask", `{"id":"` + done.ID + `"}`, -32004, `the task ` + done.ID + ` has ended; get it instead`},
			{h.Client, "SendMessage", message("m-3", done.ID, ""), -32004, `the task ` + done.ID + ` has ended; send a message without taskId for a new one`},
			{h.Client, "SendMessage", message("m-3", open.ID, ""), -32004, `the task ` + open.ID + ` has no open question and takes no messages`},
			{h.Client, "SendMessage", message("m-3", open.ID, "ours"), -32602, `the task ` + open.ID + ` belongs to another context than "ours"`},
			{h.Client, "SendMessage", message("m-3", "none", "ours"), -32001, `there is no task "none"`},
			{other, "SendMessage", message("m-3", "", "ours"), -32602, `the context "ours" cannot be used; omit contextId for a new one`},
			{h.Client, "SendMessage", message("m-3", "", strings.Repeat("c", 65)), -32602, `message.contextId must have at most 64 printable characters`},
			{h.Client, "SendMessage", message("m-1", "", "other"), -32602, `the messageId "m-1" was used for another message, tenant, capability or workflow of the task ` + done.ID},
			{h.Client, "SendMessage", `{"tenant":"echo-1",` + message("m-1", "", "ours")[1:], -32602, `the messageId "m-1" was used for another message, tenant, capability or workflow of the task ` + done.ID},
			{h.Client, "SendMessage", `{"metadata":{"workflow":"slow"},` + message("m-1", "", "ours")[1:], -32602, `the messageId "m-1" was used for another message, tenant, capability or workflow of the task ` + done.ID},
			{h.Client, "SendMessage", `{"metadata":{"capability":"slow"},` + message("m-1", "", "ours")[1:], -32602, `the messageId "m-1" was used for another message, tenant, capability or workflow of the task ` + done.ID},
			{h.Client, "SendMessage", `{}`, -32602, `message is required`},
			{h.Client, "SendMessage", `{"message":"x"}`, -32602, `message must be an object`},
			{h.Client, "SendMessage", `{"metadata":{"capability":5},` + message("m-3", "", "")[1:], -32602, `metadata.capability must be a string`},
			{h.Client, "SendMessage", `{"message":{"messageId":"m-3","role":"ROLE_USER","parts":[{"text":"a"}],"metadata":{"workflow":null}}}`, -32602, `metadata.workflow must be a string`},
			{h.Client, "SendMessage", `{"message":{"messageId":"m-3","role":"ROLE_USER","parts":[{"text":"a","url":"b"}]}}`, -32602, `message.parts[0] must have one of text, raw, url and data`},
			{h.Client, "SendMessage", `{"message":{"messageId":"m-3","role":"ROLE_AGENT","parts":[{"text":"a"}]}}`, -32602, `message.role must be ROLE_USER`},
			{h.Client, "ListTasks", `{"pageToken":"x"}`, -32602, `pageToken must be the nextPageToken of an earlier page`},
			{h.Client, "ListTasks", `{"pageSize":101}`, -32602, `pageSize must be 1 to 100`},
			{h.Client, "ListTasks", `{"status":"DONE"}`, -32602, `status must be a state of a task, not "DONE"`},
			{h.Client, "tasks/get", `{}`, -32601, `version 1.0 has no method "tasks/get"; those of version 0.3 need the header A2A-Version: 0.3`},
			{h.Client, "ListTasks", `{"statusTimestampAfter":"x"}`, -32602, `"x" must be a time such as 2026-01-10T15:30:00Z`},
			{reader, "SendMessage", message("m-3", "", ""), -32600, `the token "test" lacks the scope "messages:send"`},
		} {
			var out struct{ Error rpcFailure }
			resp := c.by.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":"7","method":"`+c.method+`","params":`+c.params+`}`, "A2A-Version", "1.0")
			require.NoError(t, json.Unmarshal(resp.Body, &out))
			require.Equal(t, c.code, out.Error.Code, "%s %s: %s", c.method, c.params, resp.Body)
			require.Equal(t, c.text, out.Error.Message, "%s %s", c.method, c.params)
		}
		var rest struct{ Error struct{ Message string } }
		h.Do(t, http.MethodPost, "/a2a/rest/tasks/"+done.ID+":cancel", "", "A2A-Version", "1.0").Decode(t, http.StatusConflict, &rest)
		require.Equal(t, `the task `+done.ID+` has ended`, rest.Error.Message)
		h.Do(t, http.MethodGet, "/a2a/rest/tasks/x/y", "", "A2A-Version", "1.0").Decode(t, http.StatusNotFound, &rest)
		require.Equal(t, `there is no /a2a/rest/tasks/x/y; docs/a2a.md lists the paths`, rest.Error.Message)
		h.Do(t, http.MethodPost, "/a2a/rest/message:send", `{"a":}`, "A2A-Version", "1.0").Decode(t, http.StatusBadRequest, &rest)
		require.Equal(t, `the body is not JSON: invalid character '}' looking for beginning of value at byte 6`, rest.Error.Message)
		h.Do(t, http.MethodGet, "/a2a/rest/tasks", "").Decode(t, http.StatusBadRequest, &rest)
		require.Equal(t, `HTTP+JSON needs the header A2A-Version: 1.0; version 0.3 is available over JSON-RPC at /a2a`, rest.Error.Message)
		h.Do(t, http.MethodGet, "/a2a/rest/tasks", "", "A2A-Version", "2.0").Decode(t, http.StatusBadRequest, &rest)
		require.Equal(t, `the versions of A2A are 1.0 and 0.3, not "2.0"`, rest.Error.Message)
		testkit.NewClient(t, h.server.URL, "wrong").Do(t, http.MethodGet, "/a2a/rest/tasks", "", "A2A-Version", "1.0").Decode(t, http.StatusUnauthorized, &rest)
		require.Equal(t, `the token is unknown, expired or revoked`, rest.Error.Message)
	})
}

// TestMethodsAndPaths: a method that a path does not accept is an error 405 with the methods that it accepts, and an unknown path is
// an error 404, in the form of the other errors, whatever the version.
func TestMethodsAndPaths(t *testing.T) {
	t.Parallel()
	onDatabases(t, "HTTP+JSON", func(t *testing.T, h *harness) {
		for path, allow := range map[string]string{
			"GET message:send": "POST", "PUT message:stream": "POST", "DELETE tasks": "GET", "HEAD tasks": "GET", "POST tasks/x": "GET", "GET tasks/x:cancel": "POST",
			"PUT tasks/x:subscribe": "GET, POST", "PUT tasks/x/pushNotificationConfigs": "GET, POST", "POST tasks/x/pushNotificationConfigs/y": "DELETE, GET",
			"POST extendedAgentCard": "GET", "POST say-1/tasks/x": "GET",
			"GET nothing": "", "POST tasks/": "", "GET tasks/x/y": "", "POST tasks/x:stop": "", "GET tasks/x/pushNotificationConfigs/y/z": "", "GET ": "", "GET say-1/": "",
		} {
			method, at, _ := strings.Cut(path, " ")
			want, status := http.StatusMethodNotAllowed, `"status":"INVALID_ARGUMENT"`
			if allow == "" {
				want, status = http.StatusNotFound, `"status":"NOT_FOUND"`
			}
			for _, version := range []string{"1.0", "0.3", "", "7.0"} {
				resp := h.Do(t, method, "/a2a/rest/"+at, "", "A2A-Version", version)
				require.Equal(t, want, resp.Status, path)
				require.Equal(t, allow, resp.Header.Get("Allow"), path)
				require.Equal(t, "application/json", resp.Header.Get("Content-Type"), path)
				if method != http.MethodHead {
					require.Contains(t, resp.String(), status, path)
					require.Contains(t, resp.String(), "/a2a/rest/"+at, path)
				}
			}
		}
		unknown := testkit.NewClient(t, h.server.URL, "wrong").Do(t, http.MethodGet, "/a2a/rest/nothing", "", "A2A-Version", "1.0")
		require.Equal(t, http.StatusUnauthorized, unknown.Status)
		for _, path := range []string{"/a2a", "/a2a/agents/x/agent-card.json", "/.well-known/agent-card.json"} {
			resp := h.Do(t, http.MethodDelete, path, "")
			require.Contains(t, []int{http.StatusMethodNotAllowed, http.StatusNotFound}, resp.Status, path)
			require.Equal(t, "application/json", resp.Header.Get("Content-Type"), path)
		}
	})
}

// TestQuestionsOfSubtasks: the question of a subtask is an event of its parent, for streams and for push notifications.
func TestQuestionsOfSubtasks(t *testing.T) {
	t.Parallel()
	onDatabases(t, "hand-off", func(t *testing.T, h *harness) {
		begin := make(chan struct{})
		h.worker(t, "lead-1", func(ctx context.Context, o orchestrator.TaskWithInput) {
			<-begin
			_, err := h.HandOff(ctx, testkit.Admin(), "lead-1", o.Task.ID, orchestrator.Submission{Capabilities: []string{"ask"}})
			assertNoError(t, err)
		}, "lead")
		h.worker(t, "ask-1", h.asks("which year?"), "ask")
		r := receive(t, nil)
		root := send(t, h.Client, text("m-1", "report", "lead", "", ""), `{"returnImmediately":true,"taskPushNotificationConfig":{"url":"`+r.url+`"}}`)
		s := open(t, h.Client, "/tasks/"+root.ID+":subscribe", "")
		require.Contains(t, []string{"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}, s.must().state())
		close(begin)
		var asked received
		for asked = s.must(); asked.state() != "TASK_STATE_INPUT_REQUIRED"; {
			asked = s.must()
		}
		question := asked.StatusUpdate.Status.Message
		require.Equal(t, "which year?", question.Parts[0].Text)
		require.Equal(t, getTask(t, h.Client, root.ID).Status.Message, question)
		got := r.until(t, "TASK_STATE_INPUT_REQUIRED")
		require.Equal(t, question, got[len(got)-1].StatusUpdate.Status.Message)

		resumed := open(t, h.Client, "/tasks/"+root.ID+":subscribe", "", "Last-Event-ID", asked.id)
		require.Equal(t, root.ID, send(t, h.Client, text("m-2", "2026", "", "", root.ID), returnImmediately).ID)
		for _, s := range []*stream{s, resumed} {
			require.Equal(t, "TASK_STATE_WORKING", s.must().state())
		}
		r.until(t, "TASK_STATE_WORKING")
	})
}

// TestStreamOfAChoice: the stream of a task that asks for a capability follows its events.
func TestStreamOfAChoice(t *testing.T) {
	t.Parallel()
	onDatabases(t, "choice", func(t *testing.T, h *harness) {
		for _, id := range []string{"read-file", "read-mail"} {
			h.worker(t, id, h.returns("done by "+id), id)
		}
		ask := func(id string) (string, *stream) {
			asked := send(t, h.Client, text(id, "read file and mail", "", "", ""))
			s := open(t, h.Client, "/tasks/"+asked.ID+":subscribe", "")
			require.Equal(t, "TASK_STATE_INPUT_REQUIRED", s.must().state())
			return asked.ID, s
		}
		id, s := ask("m-1")
		send(t, h.Client, text("m-2", "read-mail", "", "", id))
		all := s.rest()
		require.Equal(t, "TASK_STATE_COMPLETED", all[len(all)-1].state())
		id, s = ask("m-3")
		require.Nil(t, rpc(t, h.Client, "CancelTask", `{"id":"`+id+`"}`, nil))
		all = s.rest()
		require.Len(t, all, 1)
		require.Equal(t, "TASK_STATE_CANCELED", all[0].state())
	})
}

// assertNoError reports an error of another goroutine than that of the test.
func assertNoError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("unexpected error: %v", err)
	}
}
