package a2a_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
	"comet/store"
)

// pushed is a request that a receiver got.
type pushed struct {
	header http.Header
	body   string
	event
}

// receiver is a receiver of push notifications.
type receiver struct {
	url string
	got chan pushed
}

// receive starts a receiver that answers with the status that the function returns, 200 if it is nil.
func receive(t *testing.T, status func() int) receiver {
	t.Helper()
	r := receiver{got: make(chan pushed, 100)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		p := pushed{header: req.Header.Clone(), body: string(body)}
		if err == nil {
			err = json.Unmarshal(body, &p.event)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if status != nil {
			w.WriteHeader(status())
		}
		r.got <- p
	}))
	t.Cleanup(server.Close)
	r.url = server.URL + "/push"
	return r
}

// until returns the notifications up to the first one in a state.
func (r receiver) until(t *testing.T, state string) (all []pushed) {
	t.Helper()
	for {
		p := testkit.Receive(t, r.got)
		if all = append(all, p); p.state() == state || strings.Contains(p.body, `"state":"`+state+`"`) {
			return all
		}
	}
}

// pushedStates returns the states of notifications without repetitions.
func pushedStates(all []pushed) (out []string) {
	for _, p := range all {
		if len(out) == 0 || out[len(out)-1] != p.state() {
			out = append(out, p.state())
		}
	}
	return out
}

// legacyRPC calls a method of version 0.3.
func legacyRPC(t *testing.T, c *testkit.Client, method, params string, result any) {
	t.Helper()
	var out struct {
		Result json.RawMessage
		Error  *rpcFailure
	}
	c.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`).Decode(t, http.StatusOK, &out)
	require.Nil(t, out.Error)
	if result != nil {
		require.NoError(t, json.Unmarshal(out.Result, result), "%s", out.Result)
	}
}

// hooksOf returns the webhooks of a task.
func (h *harness) hooksOf(t *testing.T, taskID string) []models.Webhook {
	t.Helper()
	all, err := h.hooks.OfTask(t.Context(), taskID)
	require.NoError(t, err)
	return all
}

// TestPush sends configurations with messages and reads what arrives.
func TestPush(t *testing.T) {
	t.Parallel()

	onDatabases(t, "TheTaskIsPushedUntilItsEnd", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("which year?"), "ask")
		r := receive(t, nil)
		config := `{"taskPushNotificationConfig":{"id":"c-1","url":"` + r.url + `","token":"t-1","authentication":{"scheme":"Bearer","credentials":"s-1"}}}`
		asked := send(t, h.Client, text("m-1", "report", "ask", "", ""), config)
		send(t, h.Client, text("m-2", "2026", "", "", asked.ID))
		got := r.until(t, "TASK_STATE_COMPLETED")
		require.Equal(t, []string{"TASK_STATE_WORKING", "TASK_STATE_INPUT_REQUIRED", "TASK_STATE_WORKING", "TASK_STATE_COMPLETED"}, pushedStates(got))
		for _, p := range got {
			require.Equal(t, []string{"Bearer s-1", "t-1", "application/a2a+json"}, []string{p.header.Get("Authorization"), p.header.Get("X-A2A-Notification-Token"), p.header.Get("Content-Type")})
		}
		last := got[len(got)-1]
		require.Equal(t, getTask(t, h.Client, asked.ID).Artifacts, last.Task.Artifacts)
		require.Equal(t, asked.ID, last.Task.ID)
		question := got[len(got)-3]
		require.Equal(t, "which year?", question.StatusUpdate.Status.Message.Parts[0].Text)
		require.Equal(t, asked.Status.Message.MessageID, question.StatusUpdate.Status.Message.MessageID)
		require.Eventually(t, func() bool { return !h.hooksOf(t, asked.ID)[0].Enabled }, testkit.Timeout, 5*time.Millisecond)
		require.Equal(t, "the task has ended", h.hooksOf(t, asked.ID)[0].DisabledReason)
	})

	onDatabases(t, "Version03PushesTheTask", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("which year?"), "ask")
		r := receive(t, nil)
		var sent struct{ ID string }
		legacyRPC(t, h.Client, "message/send", `{"message":{"kind":"message","messageId":"m-1","role":"user","parts":[{"kind":"text","text":"report"}],"metadata":{"capability":"ask"}},
			"configuration":{"pushNotificationConfig":{"url":"`+r.url+`","token":"t-1","authentication":{"schemes":["Basic"],"credentials":"dTpw"}}}}`, &sent)
		legacyRPC(t, h.Client, "message/send", `{"message":{"kind":"message","messageId":"m-2","role":"user","taskId":"`+sent.ID+`","parts":[{"kind":"text","text":"2026"}]}}`, nil)
		got := r.until(t, "completed")
		for _, p := range got {
			var pushed struct{ Kind, ID string }
			require.NoError(t, json.Unmarshal([]byte(p.body), &pushed))
			require.Equal(t, []string{"task", sent.ID}, []string{pushed.Kind, pushed.ID})
			require.Equal(t, []string{"Basic dTpw", "t-1", "application/json"}, []string{p.header.Get("Authorization"), p.header.Get("X-A2A-Notification-Token"), p.header.Get("Content-Type")})
		}
		require.Contains(t, got[len(got)-1].body, `you said 2026`)

		var config, again struct {
			TaskID string
			Config struct {
				ID, URL, Token string
				Authentication struct{ Schemes []string }
			} `json:"pushNotificationConfig"`
		}
		legacyRPC(t, h.Client, "tasks/pushNotificationConfig/get", `{"id":"`+sent.ID+`"}`, &config)
		require.Equal(t, []string{sent.ID, sent.ID, r.url, ""}, []string{config.TaskID, config.Config.ID, config.Config.URL, config.Config.Token})
		require.Equal(t, []string{"Basic"}, config.Config.Authentication.Schemes)
		legacyRPC(t, h.Client, "tasks/pushNotificationConfig/set", `{"taskId":"`+sent.ID+`","pushNotificationConfig":{"id":"c-2","url":"`+r.url+`"}}`, &again)
		require.Equal(t, "c-2", again.Config.ID)
		var all []struct{ TaskID string }
		legacyRPC(t, h.Client, "tasks/pushNotificationConfig/list", `{"id":"`+sent.ID+`"}`, &all)
		require.Len(t, all, 2)
		legacyRPC(t, h.Client, "tasks/pushNotificationConfig/delete", `{"id":"`+sent.ID+`","pushNotificationConfigId":"c-2"}`, nil)
		legacyRPC(t, h.Client, "tasks/pushNotificationConfig/list", `{"id":"`+sent.ID+`"}`, &all)
		require.Len(t, all, 1)
	})

	onDatabases(t, "AnotherAttemptFollowsAFailure", func(t *testing.T, h *harness) {
		h.worker(t, "echo-1", h.returns("done"), "echo")
		failed := false
		r := receive(t, func() int {
			if !failed {
				failed = true
				return http.StatusServiceUnavailable
			}
			return http.StatusOK
		})
		done := send(t, h.Client, text("m-1", "x", "echo", "", ""), `{"taskPushNotificationConfig":{"url":"`+r.url+`"}}`)
		first := testkit.Receive(t, r.got)
		var got []pushed
		require.Eventually(t, func() bool {
			h.DB.Clock.Advance(time.Second) // until the next attempt is due
			for {
				select {
				case p := <-r.got:
					got = append(got, p)
				default:
					return len(got) > 0 && got[len(got)-1].state() == "TASK_STATE_COMPLETED"
				}
			}
		}, testkit.Timeout, 5*time.Millisecond)
		require.Equal(t, first.body, got[0].body)
		require.Equal(t, first.header.Get("Webhook-Id"), got[0].header.Get("Webhook-Id"))
		require.Equal(t, []string{"TASK_STATE_WORKING", "TASK_STATE_COMPLETED"}, pushedStates(got))
		require.Equal(t, done.ID, got[len(got)-1].Task.ID)
	})

	onDatabases(t, "TheEndOfTheTokenEndsThem", func(t *testing.T, h *harness) {
		h.worker(t, "slow-1", func(context.Context, orchestrator.TaskWithInput) {}, "slow")
		r := receive(t, nil)
		other := h.client(t, "", models.ScopeMessagesSend)
		id := send(t, other, text("m-1", "x", "slow", "", ""), `{"returnImmediately":true,"taskPushNotificationConfig":{"url":"`+r.url+`"}}`).ID
		r.until(t, "TASK_STATE_WORKING")
		token, err := h.auth.Verify(t.Context(), other.Token)
		require.NoError(t, err)
		require.NoError(t, h.auth.Revoke(t.Context(), testkit.Admin(), token.TokenID, nil))
		require.Nil(t, rpc(t, h.Client, "CancelTask", `{"id":"`+id+`"}`, nil))
		require.Eventually(t, func() bool { return !h.hooksOf(t, id)[0].Enabled }, testkit.Timeout, 5*time.Millisecond)
		require.Contains(t, h.hooksOf(t, id)[0].DisabledReason, "is expired or revoked")
		require.Empty(t, r.got)
	})

	onDatabases(t, "TheChoiceOfACapability", func(t *testing.T, h *harness) {
		for _, id := range []string{"read-file", "read-mail"} {
			h.AddAgent(t, id, "", id)
		}
		r := receive(t, nil)
		asked := send(t, h.Client, text("m-1", "read file and mail", "", "", ""), `{"taskPushNotificationConfig":{"url":"`+r.url+`"}}`)
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", asked.Status.State)
		require.Nil(t, rpc(t, h.Client, "CancelTask", `{"id":"`+asked.ID+`"}`, nil))
		require.Equal(t, asked.ID, r.until(t, "TASK_STATE_CANCELED")[0].Task.ID)
	})
}

// TestPushConfigs creates, reads and deletes configurations over both bindings.
func TestPushConfigs(t *testing.T) {
	t.Parallel()

	onDatabases(t, "Lifecycle", func(t *testing.T, h *harness) {
		h.worker(t, "echo-1", h.returns("done"), "echo")
		id := send(t, h.Client, text("m-1", "x", "echo", "", "")).ID
		const url = "https://example.com/push"
		var made map[string]any
		require.Nil(t, rpc(t, h.Client, "CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","id":"c-1","url":"`+url+`","token":"t","authentication":{"scheme":"Bearer","credentials":"secret"}}`, &made))
		require.Equal(t, map[string]any{"id": "c-1", "taskId": id, "url": url, "authentication": map[string]any{"scheme": "Bearer"}}, made)
		rest := func(method, path, body string, status int) string {
			resp := h.Do(t, method, "/a2a/rest/tasks/"+id+"/pushNotificationConfigs"+path, body, "A2A-Version", "1.0")
			require.Equal(t, status, resp.Status, "%s", resp.Body)
			return string(resp.Body)
		}
		require.JSONEq(t, `{"configs":[{"id":"c-1","taskId":"`+id+`","url":"`+url+`","authentication":{"scheme":"Bearer"}}],"nextPageToken":""}`, rest(http.MethodGet, "", "", http.StatusOK))
		require.JSONEq(t, `{"id":"c-1","taskId":"`+id+`","url":"`+url+`/2"}`, rest(http.MethodPost, "", `{"id":"c-1","url":"`+url+`/2"}`, http.StatusOK))
		require.JSONEq(t, `{"id":"c-1","taskId":"`+id+`","url":"`+url+`/2"}`, rest(http.MethodGet, "/c-1", "", http.StatusOK))
		require.JSONEq(t, `{}`, rest(http.MethodDelete, "/c-1", "", http.StatusOK))
		require.JSONEq(t, `{}`, rest(http.MethodDelete, "/c-1", "", http.StatusOK))
		require.Contains(t, rest(http.MethodGet, "/c-1", "", http.StatusNotFound), `the task `+id+` has no push notification configuration \"c-1\"`)

		for range 10 { // without an id each is another one; the SDK for Go uses the member config
			require.Nil(t, rpc(t, h.Client, "CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","config":{"url":"`+url+`"}}`, nil))
		}
		failure := rpc(t, h.Client, "CreateTaskPushNotificationConfig", `{"taskId":"`+id+`","url":"`+url+`"}`, nil)
		require.Equal(t, &rpcFailure{Code: -32602, Message: "the task " + id + " has 10 configurations of push notifications, and it may have no more; delete one first"}, failure)
		for _, hook := range h.hooksOf(t, id) {
			require.False(t, hook.Enabled) // the task has ended
		}
		all, err := h.hooks.List(t.Context(), testkit.Admin(), "", 10)
		require.NoError(t, err)
		require.Empty(t, all)
	})

	onDatabases(t, "Errors", func(t *testing.T, h *harness) {
		h.worker(t, "echo-1", h.returns("done"), "echo")
		id := send(t, h.Client, text("m-1", "x", "echo", "", "")).ID
		other := h.client(t, "", models.ScopeMessagesSend)
		for params, want := range map[string]string{
			`{"taskId":"` + id + `"}`:                                                                         "the url of a push notification configuration is required",
			`{"taskId":"` + id + `","url":"ftp://example.com"}`:                                               "url must be absolute and begin with https:// or http://",
			`{"taskId":"` + id + `","url":"https://10.0.0.1/x"}`:                                              "10.0.0.1",
			`{"taskId":"` + id + `","url":"https://example.com","id":"` + strings.Repeat("x", 129) + `"}`:     "the id of a push notification configuration must have at most 128 printable characters",
			`{"taskId":"` + id + `","url":"https://example.com","authentication":{"scheme":"a b"}}`:           "authentication.scheme must be the name of an HTTP authentication scheme, such as Bearer",
			`{"taskId":"` + id + `","url":"https://example.com","token":"a\nb"}`:                              "is not the name of an HTTP header, or its value is not allowed in a header",
			`{"taskId":"` + id + `","url":"https://example.com","token":"` + strings.Repeat("x", 5000) + `"}`: "headers must be at most 20 with 4096 bytes of names and values",
			`{"taskId":"` + id + `","url":7}`:                                                                 `has the wrong type: number`,
		} {
			failure := rpc(t, h.Client, "CreateTaskPushNotificationConfig", params, nil)
			require.NotNil(t, failure, params)
			require.Equal(t, -32602, failure.Code, params)
			require.Contains(t, failure.Message, want)
		}
		require.Nil(t, rpc(t, h.Client, "SendMessage", `{"message":`+text("m-8", "x", "echo", "", "")+`,"configuration":{"pushNotificationConfig":{"url":"https://example.com","authentication":{"schemes":["Bearer"]}}}}`, nil))
		failure := rpc(t, h.Client, "SendMessage", `{"message":`+text("m-9", "x", "echo", "", "")+`,"configuration":{"taskPushNotificationConfig":{"url":"x"}}}`, nil)
		require.Equal(t, &rpcFailure{Code: -32602, Message: "url must be absolute and begin with https:// or http://"}, failure)
		for _, method := range []string{"CreateTaskPushNotificationConfig", "GetTaskPushNotificationConfig", "ListTaskPushNotificationConfigs", "DeleteTaskPushNotificationConfig"} {
			for _, task := range []string{id, "none"} {
				failure := rpc(t, other, method, `{"taskId":"`+task+`","id":"c","url":"https://example.com"}`, nil)
				require.NotNil(t, failure, method)
				require.Equal(t, -32001, failure.Code)
				require.Equal(t, `there is no task "`+task+`"`, failure.Message)
			}
		}
	})

	onDatabases(t, "TheyEndWithTheTask", func(t *testing.T, h *harness) {
		h.AddAgent(t, "read-file", "", "read-file")
		asked := send(t, h.Client, text("m-1", "read", "none-offers-this", "", ""))
		require.Equal(t, "TASK_STATE_REJECTED", asked.Status.State)
		require.Nil(t, rpc(t, h.Client, "CreateTaskPushNotificationConfig", `{"taskId":"`+asked.ID+`","url":"https://example.com"}`, nil))
		require.Len(t, h.hooksOf(t, asked.ID), 1)
		h.DB.Clock.Advance(31 * 24 * time.Hour)
		require.NoError(t, h.handler.Purge(t.Context()))
		require.Empty(t, h.hooksOf(t, asked.ID))
		n, err := store.Row[int](h.DB.Store.Reads(t.Context()), "SELECT count(*) FROM webhooks")
		require.NoError(t, err)
		require.Zero(t, n)
	})
}
