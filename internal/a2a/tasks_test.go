package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
)

// TestSendMessage: a message is a task, whose result is an artifact.
func TestSendMessage(t *testing.T) {
	t.Parallel()
	onDatabases(t, "blocking is the default", func(t *testing.T, h *harness) {
		h.worker(t, "echo-1", func(ctx context.Context, o orchestrator.TaskWithInput) {
			_, _ = h.Complete(ctx, "echo-1", o.Task.ID, orchestrator.Result{Output: []byte("you sent " + string(o.Input.Parameters))})
		}, "echo")
		got := send(t, h.Client, text("m-1", "hello", "echo", "", ""))
		require.Equal(t, "TASK_STATE_COMPLETED", got.Status.State)
		require.Equal(t, []part{{Text: `you sent {"text":"hello","message_id":"m-1"}`, MediaType: "text/plain"}}, got.Artifacts[0].Parts)
		require.NotEmpty(t, got.ContextID)
		require.Equal(t, "hello", got.History[0].Parts[0].Text)
		require.Equal(t, [3]string{"m-1", got.ID, got.ContextID}, [3]string{got.History[0].MessageID, got.History[0].TaskID, got.History[0].ContextID})
		at, err := time.Parse("2006-01-02T15:04:05.999Z", got.Status.Timestamp)
		require.NoError(t, err)
		require.Equal(t, h.DB.Now().UTC().Truncate(time.Millisecond), at)
		require.Equal(t, got, getTask(t, h.Client, got.ID))
		session, err := h.Session(t.Context(), got.ContextID)
		require.NoError(t, err)
		require.Equal(t, 1, session.Tasks)
	})
	onDatabases(t, "returnImmediately", func(t *testing.T, h *harness) {
		h.worker(t, "slow-1", func(context.Context, orchestrator.TaskWithInput) {}, "slow")
		got := send(t, h.Client, text("m-1", "hello", "slow", "", ""), returnImmediately)
		require.Contains(t, []string{"TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"}, got.Status.State)
		require.Empty(t, got.Artifacts)
	})
	onDatabases(t, "the object of a data part is the parameters, digit for digit", func(t *testing.T, h *harness) {
		h.worker(t, "echo-1", func(ctx context.Context, o orchestrator.TaskWithInput) {
			_, _ = h.Complete(ctx, "echo-1", o.Task.ID, orchestrator.Result{Output: o.Input.Parameters})
		}, "echo")
		got := send(t, h.Client, `{"messageId":"m","role":"ROLE_USER","metadata":{"capability":"echo"},"parts":[{"data":{"n":12345678901234567890,"user_id":[1.50]}}]}`)
		require.JSONEq(t, `{"n":12345678901234567890,"user_id":[1.50]}`, string(got.Artifacts[0].Parts[0].Data))
		require.Contains(t, string(got.Artifacts[0].Parts[0].Data), "12345678901234567890")
	})
	onDatabases(t, "files come in and go out", func(t *testing.T, h *harness) {
		h.worker(t, "echo-1", func(ctx context.Context, o orchestrator.TaskWithInput) {
			var in map[string]any
			_ = json.Unmarshal(o.Input.Parameters, &in)
			delete(in, "message_id")
			out, _ := json.Marshal(in)
			_, _ = h.Complete(ctx, "echo-1", o.Task.ID, orchestrator.Result{Output: out})
		}, "echo")
		got := send(t, h.Client, `{"messageId":"m","role":"ROLE_USER","metadata":{"capability":"echo"},"parts":[{"text":"two"},{"text":"lines"},{"data":[1]},
			{"raw":"AP8=","filename":"a.bin","mediaType":"image/png"},{"url":"https://example.com/b","mediaType":"text/html"}]}`)
		require.Equal(t, []part{
			{Text: "two\nlines", MediaType: "text/plain"}, {Data: json.RawMessage("[1]"), MediaType: "application/json"},
			{Raw: []byte{0, 255}, Filename: "a.bin", MediaType: "image/png"}, {URL: "https://example.com/b", MediaType: "text/html"},
		}, got.Artifacts[0].Parts)
	})
	onDatabases(t, "a result that is a message is returned as one", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns(`{"message":"good day"}`), "say")
		var out event
		require.Nil(t, rpc(t, h.Client, "SendMessage", `{"message":`+text("m-1", "hello", "say", "", "")+`}`, &out))
		require.Equal(t, "good day", out.Message.Parts[0].Text)
		require.Equal(t, "ROLE_AGENT", out.Message.Role)
		require.Equal(t, "good day", getTask(t, h.Client, out.Message.TaskID).Artifacts[0].Parts[0].Text)
	})
	onDatabases(t, "a failure says why", func(t *testing.T, h *harness) {
		h.worker(t, "bad-1", func(ctx context.Context, o orchestrator.TaskWithInput) {
			_, _ = h.Complete(ctx, "bad-1", o.Task.ID, orchestrator.Result{Failure: orchestrator.FailureWork, Text: "no such file"})
		}, "bad")
		got := send(t, h.Client, text("m-1", "hello", "bad", "", ""))
		require.Equal(t, "TASK_STATE_FAILED", got.Status.State)
		require.Equal(t, "no such file", got.Status.Message.Parts[0].Text)
	})
	onDatabases(t, "work that no agent offers is rejected", func(t *testing.T, h *harness) {
		got := send(t, h.Client, text("m-1", "hello", "nothing", "", ""))
		require.Equal(t, "TASK_STATE_REJECTED", got.Status.State)
		require.Contains(t, got.Status.Message.Parts[0].Text, "nothing")
		require.Equal(t, got, getTask(t, h.Client, got.ID))
	})
	onDatabases(t, "the tenant is the agent", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("one"), "say")
		h.worker(t, "say-2", h.returns("two"), "say")
		for agent, want := range map[string]string{"say-1": "one", "say-2": "two"} {
			var out event
			require.Nil(t, rpc(t, h.Client, "SendMessage", `{"tenant":"`+agent+`","message":`+text("m-"+agent, "hello", "", "", "")+`}`, &out))
			require.Equal(t, want, out.Task.Artifacts[0].Parts[0].Text)
		}
	})
}

// TestMessageIDs: a message takes effect once.
func TestMessageIDs(t *testing.T) {
	t.Parallel()
	onDatabases(t, "a repetition returns the same task", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("done"), "say")
		first := send(t, h.Client, text("m-1", "hello", "say", "", ""))
		require.Equal(t, first, send(t, h.Client, text("m-1", "hello", "say", "", "")))
		failed := rpc(t, h.Client, "SendMessage", `{"message":`+text("m-1", "another", "say", "", "")+`}`, nil)
		require.Equal(t, -32602, failed.Code)
		other := h.client(t, "", models.ScopeMessagesSend)
		require.NotEqual(t, first.ID, send(t, other, text("m-1", "hello", "say", "", "")).ID, "another token has ids of its own")
	})
	onDatabases(t, "repetitions at the same time", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("done"), "say")
		ids, sending := make([]string, 8), sync.WaitGroup{}
		for i := range ids {
			sending.Go(func() {
				resp, err := h.Send(t.Context(), http.MethodPost, "/a2a/rest/message:send", `{"message":`+text("m-1", "hello", "say", "", "")+`}`, "A2A-Version", "1.0")
				var out event
				if err == nil && json.Unmarshal(resp.Body, &out) == nil && out.Task != nil {
					ids[i] = out.Task.ID
				}
			})
		}
		sending.Wait()
		for _, id := range ids {
			require.Equal(t, ids[0], id)
		}
		require.NotEmpty(t, ids[0])
	})
}

// TestContexts: a context is a session.
func TestContexts(t *testing.T) {
	t.Parallel()
	onDatabases(t, "a context continues", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("done"), "say")
		first := send(t, h.Client, text("m-1", "hello", "say", "", ""))
		second := send(t, h.Client, text("m-2", "again", "say", first.ContextID, ""))
		require.Equal(t, first.ContextID, second.ContextID)
		own := send(t, h.Client, text("m-3", "hello", "say", "my-context", ""))
		require.Equal(t, "my-context", own.ContextID)
	})
	onDatabases(t, "a context of another token, or a closed one, cannot be used", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("done"), "say")
		one, other := h.client(t, "", models.ScopeMessagesSend), h.client(t, "", models.ScopeMessagesSend)
		first := send(t, one, text("m-1", "hello", "say", "", ""))
		require.Equal(t, -32602, rpc(t, other, "SendMessage", `{"message":`+text("m-2", "hello", "say", first.ContextID, "")+`}`, nil).Code)
		_, err := h.CloseSession(t.Context(), first.ContextID)
		require.NoError(t, err)
		require.Equal(t, -32602, rpc(t, one, "SendMessage", `{"message":`+text("m-3", "hello", "say", first.ContextID, "")+`}`, nil).Code)
	})
	onDatabases(t, "a task keeps its context", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.asks("what?"), "say")
		first := send(t, h.Client, text("m-1", "hello", "say", "", ""))
		require.Equal(t, -32602, rpc(t, h.Client, "SendMessage", `{"message":`+text("m-2", "a", "", "another", first.ID)+`}`, nil).Code)
	})
}

// asks is a worker that asks once, and returns the reply.
func (h *harness) asks(question string, options ...string) func(context.Context, orchestrator.TaskWithInput) {
	return func(ctx context.Context, o orchestrator.TaskWithInput) {
		if o.Task.Questions == 0 {
			_, _ = h.Clarify(ctx, o.Task.AgentID, o.Task.ID, orchestrator.Question{Text: question, Options: options})
			return
		}
		said, _ := h.LastReply(ctx, o.Task)
		_, _ = h.Complete(ctx, o.Task.AgentID, o.Task.ID, orchestrator.Result{Output: []byte("you said " + said)})
	}
}

// TestQuestions: a task that asks is INPUT_REQUIRED, and the next message replies.
func TestQuestions(t *testing.T) {
	t.Parallel()
	onDatabases(t, "a message replies", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("which year?", "2025", "2026"), "ask")
		asked := send(t, h.Client, text("m-1", "report", "ask", "", ""))
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", asked.Status.State)
		require.Equal(t, "which year?", asked.Status.Message.Parts[0].Text)
		require.Equal(t, []any{"2025", "2026"}, asked.Status.Message.Metadata["options"])
		done := send(t, h.Client, text("m-2", "2026", "", "", asked.ID))
		require.Equal(t, "TASK_STATE_COMPLETED", done.Status.State)
		require.Equal(t, "you said 2026", done.Artifacts[0].Parts[0].Text)
		var said []string
		for _, m := range done.History {
			said = append(said, m.Role+" "+m.Parts[0].Text)
		}
		require.Equal(t, []string{"ROLE_USER report", "ROLE_AGENT which year?", "ROLE_USER 2026"}, said)
		require.Equal(t, done, send(t, h.Client, text("m-2", "2026", "", "", asked.ID)), "a repeated reply changes nothing")
		require.Equal(t, -32004, rpc(t, h.Client, "SendMessage", `{"message":`+text("m-3", "more", "", "", asked.ID)+`}`, nil).Code)
		for length, want := range map[string]int{"0": 0, "2": 2, "9": 3} {
			var short task
			require.Nil(t, rpc(t, h.Client, "GetTask", `{"id":"`+asked.ID+`","historyLength":`+length+`}`, &short))
			require.Len(t, short.History, want)
		}
	})
	onDatabases(t, "the same reply at the same time", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("which year?"), "ask")
		asked := send(t, h.Client, text("m-1", "report", "ask", "", ""))
		statuses, sending := make([]int, 8), sync.WaitGroup{}
		for i := range statuses {
			sending.Go(func() {
				resp, err := h.Send(t.Context(), http.MethodPost, "/a2a/rest/message:send", `{"message":`+text("m-2", "2026", "", "", asked.ID)+`}`, "A2A-Version", "1.0")
				if err == nil {
					statuses[i] = resp.Status
				}
			})
		}
		sending.Wait()
		for _, status := range statuses {
			require.Equal(t, http.StatusOK, status)
		}
		require.Len(t, getTask(t, h.Client, asked.ID).History, 3)
	})
	onDatabases(t, "a working task takes no messages", func(t *testing.T, h *harness) {
		h.worker(t, "slow-1", func(context.Context, orchestrator.TaskWithInput) {}, "slow")
		got := send(t, h.Client, text("m-1", "hello", "slow", "", ""), returnImmediately)
		require.Equal(t, -32004, rpc(t, h.Client, "SendMessage", `{"message":`+text("m-2", "more", "", "", got.ID)+`}`, nil).Code)
	})
	onDatabases(t, "the question of a task of another API", func(t *testing.T, h *harness) {
		h.worker(t, "ask-1", h.asks("which year?"), "ask")
		by, err := h.auth.Verify(t.Context(), h.Token)
		require.NoError(t, err)
		made, err := h.Submit(t.Context(), by, orchestrator.Submission{Capabilities: []string{"ask"}, Priority: 1}, nil)
		require.NoError(t, err)
		h.WaitForTask(t, made.Task.ID, func(m models.Task) bool { return m.WaitingFor == models.WaitForReply })
		require.Equal(t, "you said 2026", send(t, h.Client, text("m-2", "2026", "", "", made.Task.ID)).Artifacts[0].Parts[0].Text)
	})
}

// TestCapabilities: without a capability, the words of the message choose one.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	onDatabases(t, "the capability that the message names", func(t *testing.T, h *harness) {
		h.worker(t, "one", h.returns("translated"), "translate")
		h.worker(t, "two", h.returns("searched"), "web_search", "search")
		require.Equal(t, "translated", send(t, h.Client, text("m-1", "Please translate this!", "", "", "")).Artifacts[0].Parts[0].Text)
		require.Equal(t, "searched", send(t, h.Client, text("m-2", "search the web", "", "", "")).Artifacts[0].Parts[0].Text)
	})
	onDatabases(t, "several capabilities are options", func(t *testing.T, h *harness) {
		h.worker(t, "one", h.returns("translated"), "translate")
		h.worker(t, "two", h.returns("summarized"), "summarize")
		asked := send(t, h.Client, text("m-1", "translate or summarize", "", "", ""))
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", asked.Status.State)
		require.Equal(t, []any{"summarize", "translate"}, asked.Status.Message.Metadata["options"])
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", send(t, h.Client, text("m-2", "neither", "", "", asked.ID)).Status.State)
		done := send(t, h.Client, text("m-3", " summarize ", "", "", asked.ID))
		require.Equal(t, []string{asked.ID, asked.ContextID, "TASK_STATE_COMPLETED", "summarized"}, []string{done.ID, done.ContextID, done.Status.State, done.Artifacts[0].Parts[0].Text})
		require.Len(t, done.History, 3)
	})
	onDatabases(t, "the capabilities of the tenant", func(t *testing.T, h *harness) {
		received := func(ctx context.Context, o orchestrator.TaskWithInput) {
			_, _ = h.Complete(ctx, o.Task.AgentID, o.Task.ID, orchestrator.Result{Output: []byte(o.Task.AgentID + " " + strings.Join(o.Input.Capabilities, " "))})
		}
		for _, id := range []string{"other", "several"} {
			h.worker(t, id, received, "translate", "summarize", "search")
		}
		h.worker(t, "one", received, "translate")
		h.worker(t, "none", received)
		sends := func(by *testkit.Client, tenant, id, said, taskID string) (out event) {
			require.Nil(t, rpc(t, by, "SendMessage", `{"tenant":"`+tenant+`","message":`+text(id, said, "", "", taskID)+`}`, &out))
			return out
		}
		for _, test := range [][3]string{{"one", "hello", "one translate"}, {"several", "summarize this", "several summarize"}, {"none", "hello", "none "}} {
			require.Equal(t, test[2], sends(h.Client, test[0], "m-"+test[0], test[1], "").Task.Artifacts[0].Parts[0].Text)
		}
		asked := sends(h.Client, "several", "m-1", "hello", "").Task
		require.Equal(t, "TASK_STATE_INPUT_REQUIRED", asked.Status.State)
		require.Equal(t, []any{"search", "summarize", "translate"}, asked.Status.Message.Metadata["options"])
		require.Equal(t, "several search", send(t, h.Client, text("m-2", "search", "", "", asked.ID)).Artifacts[0].Parts[0].Text)
	})
	onDatabases(t, "a task that asks can be canceled", func(t *testing.T, h *harness) {
		h.worker(t, "one", h.returns("translated"), "translate", "summarize")
		asked := send(t, h.Client, text("m-1", "translate or summarize", "", "", ""))
		var canceled task
		require.Nil(t, rpc(t, h.Client, "CancelTask", `{"id":"`+asked.ID+`"}`, &canceled))
		require.Equal(t, "TASK_STATE_CANCELED", canceled.Status.State)
		require.Equal(t, -32004, rpc(t, h.Client, "SendMessage", `{"message":`+text("m-2", "translate", "", "", asked.ID)+`}`, nil).Code)
		require.Equal(t, -32002, rpc(t, h.Client, "CancelTask", `{"id":"`+asked.ID+`"}`, nil).Code)
	})
	onDatabases(t, "no capability", func(t *testing.T, h *harness) {
		got := send(t, h.Client, text("m-1", "what is this?", "", "", ""))
		require.Equal(t, "TASK_STATE_REJECTED", got.Status.State)
		require.Contains(t, got.Status.Message.Parts[0].Text, "metadata.capability")
	})
}

// TestCancelTask: an open task is canceled once.
func TestCancelTask(t *testing.T) {
	t.Parallel()
	onDatabases(t, "open and ended", func(t *testing.T, h *harness) {
		h.worker(t, "slow-1", func(context.Context, orchestrator.TaskWithInput) {}, "slow")
		got := send(t, h.Client, text("m-1", "hello", "slow", "", ""), returnImmediately)
		resp := h.Do(t, http.MethodPost, "/a2a/rest/tasks/"+got.ID+":cancel", "", "A2A-Version", "1.0")
		var canceled task
		resp.Decode(t, http.StatusOK, &canceled)
		require.Equal(t, "TASK_STATE_CANCELED", canceled.Status.State)
		require.Equal(t, http.StatusConflict, h.Do(t, http.MethodPost, "/a2a/rest/tasks/"+got.ID+":cancel", "{}", "A2A-Version", "1.0").Status)
		require.Equal(t, "TASK_NOT_CANCELABLE", rpc(t, h.Client, "CancelTask", `{"id":"`+got.ID+`"}`, nil).Data[0].Reason)
	})
}

// TestAuthority: what a token may not see does not exist for it.
func TestAuthority(t *testing.T) {
	t.Parallel()
	onDatabases(t, "tasks of others", func(t *testing.T, h *harness) {
		h.worker(t, "slow-1", func(context.Context, orchestrator.TaskWithInput) {}, "slow")
		owner, other, reader := h.client(t, "", models.ScopeMessagesSend), h.client(t, "", models.ScopeMessagesSend), h.client(t, "", models.ScopeTasksRead)
		got := send(t, owner, text("m-1", "hello", "slow", "", ""), returnImmediately)
		id := `{"id":"` + got.ID + `"}`
		require.Equal(t, -32001, rpc(t, other, "GetTask", id, nil).Code)
		require.Equal(t, -32001, rpc(t, other, "CancelTask", id, nil).Code)
		require.Equal(t, -32001, rpc(t, other, "SubscribeToTask", id, nil).Code)
		require.Equal(t, -32001, rpc(t, other, "SendMessage", `{"message":`+text("m-2", "x", "", "", got.ID)+`}`, nil).Code)
		require.Nil(t, rpc(t, reader, "GetTask", id, nil))
		require.Equal(t, http.StatusForbidden, reader.Do(t, http.MethodPost, "/a2a/rest/tasks/"+got.ID+":cancel", "", "A2A-Version", "1.0").Status)
		resp := reader.Do(t, http.MethodPost, "/a2a/rest/message:send", `{"message":`+text("m", "x", "slow", "", "")+`}`, "A2A-Version", "1.0")
		require.Equal(t, http.StatusForbidden, resp.Status)
		require.Contains(t, resp.Header.Get("WWW-Authenticate"), "insufficient_scope")
		var list struct{ Tasks []task }
		require.Nil(t, rpc(t, other, "ListTasks", `{}`, &list))
		require.Empty(t, list.Tasks)
	})
	onDatabases(t, "tokens", func(t *testing.T, h *harness) {
		for path, method := range map[string]string{"/a2a": http.MethodPost, "/a2a/rest/tasks": http.MethodGet, "/a2a/agents/nova/agent-card.json": http.MethodGet} {
			none := h.Do(t, method, path, "", "Authorization", "")
			require.Equal(t, http.StatusUnauthorized, none.Status)
			require.Equal(t, "Bearer", none.Header.Get("WWW-Authenticate"))
			wrong := h.Do(t, method, path, "", "Authorization", "Bearer wrong")
			require.Equal(t, http.StatusUnauthorized, wrong.Status)
			require.Contains(t, wrong.Header.Get("WWW-Authenticate"), "invalid_token")
		}
		status := 0
		for range 20 {
			status = h.Do(t, http.MethodPost, "/a2a", "", "Authorization", "Bearer wrong").Status
		}
		require.Equal(t, http.StatusTooManyRequests, status, "wrong tokens are throttled")
	})
}

// TestListTasks: the last changed task comes first.
func TestListTasks(t *testing.T) {
	t.Parallel()
	type page struct {
		Tasks         []task
		TotalSize     int
		PageSize      int
		NextPageToken *string
	}
	onDatabases(t, "pages and filters", func(t *testing.T, h *harness) {
		h.worker(t, "say-1", h.returns("done"), "say")
		h.worker(t, "ask-1", h.asks("what?"), "ask")
		var ids []string
		for i := range 5 {
			h.DB.Clock.Advance(time.Second)
			ids = append(ids, send(t, h.Client, text(fmt.Sprint("m-", i), "hello", "say", "here", "")).ID)
		}
		h.DB.Clock.Advance(time.Second)
		asked := send(t, h.Client, text("m-ask", "hello", "ask", "there", ""))
		rejected := send(t, h.Client, text("m-no", "hello", "nothing", "", ""))
		list := func(query url.Values) (out page) {
			h.Do(t, http.MethodGet, "/a2a/rest/tasks?"+query.Encode(), "", "A2A-Version", "1.0").Decode(t, http.StatusOK, &out)
			return out
		}
		all := list(nil)
		require.Equal(t, [3]int{7, 7, 50}, [3]int{len(all.Tasks), all.TotalSize, all.PageSize})
		require.Empty(t, *all.NextPageToken)
		require.NotContains(t, string(h.Do(t, http.MethodGet, "/a2a/rest/tasks", "", "A2A-Version", "1.0").Body), "artifacts")
		var seen []string
		for token := ""; ; {
			p := list(url.Values{"contextId": {"here"}, "pageSize": {"2"}, "pageToken": {token}, "includeArtifacts": {"true"}})
			require.Equal(t, 5, p.TotalSize)
			for _, one := range p.Tasks {
				require.Equal(t, "done", one.Artifacts[0].Parts[0].Text)
				seen = append(seen, one.ID)
			}
			if token = *p.NextPageToken; token == "" {
				break
			}
		}
		require.Equal(t, []string{ids[4], ids[3], ids[2], ids[1], ids[0]}, seen)
		for state, want := range map[string]int{"COMPLETED": 5, "INPUT_REQUIRED": 1, "REJECTED": 1, "WORKING": 0, "SUBMITTED": 0, "FAILED": 0, "CANCELED": 0, "AUTH_REQUIRED": 0} {
			got := list(url.Values{"status": {"TASK_STATE_" + state}})
			require.Len(t, got.Tasks, want, state)
			require.Equal(t, want, got.TotalSize)
			if want == 1 {
				require.Contains(t, []string{asked.ID, rejected.ID}, got.Tasks[0].ID)
			}
		}
		require.Equal(t, 2, list(url.Values{"statusTimestampAfter": {h.DB.Now().Format(time.RFC3339Nano)}}).TotalSize)
		for _, wrong := range []string{"status=DONE", "pageSize=0", "pageSize=101", "pageSize=x", "pageToken=x", "statusTimestampAfter=now", "includeArtifacts=2", "historyLength=-1"} {
			require.Equal(t, http.StatusBadRequest, h.Do(t, http.MethodGet, "/a2a/rest/tasks?"+wrong, "", "A2A-Version", "1.0").Status, wrong)
		}
	})
	onDatabases(t, "purged tasks are gone", func(t *testing.T, h *harness) {
		rejected := send(t, h.Client, text("m-no", "hello", "nothing", "", ""))
		h.DB.Clock.Advance(31 * 24 * time.Hour)
		require.NoError(t, h.handler.Purge(t.Context()))
		require.Equal(t, -32001, rpc(t, h.Client, "GetTask", `{"id":"`+rejected.ID+`"}`, nil).Code)
		require.NotEqual(t, rejected.ID, send(t, h.Client, text("m-no", "hello", "nothing", "", "")).ID)
	})
}

// TestHostileNames: names that no database accepts are no failures of the server.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	onDatabases(t, "NUL", func(t *testing.T, h *harness) {
		for call, want := range map[string]int{
			`"method":"GetTask","params":{"id":"a\u0000"}`:                 -32001,
			`"method":"CancelTask","params":{"id":"a\u0000"}`:              -32001,
			`"method":"SubscribeToTask","params":{"id":"\u0000"}`:          -32001,
			`"method":"ListTasks","params":{"contextId":"\u0000"}`:         -32602,
			`"method":"GetExtendedAgentCard","params":{"tenant":"\u0000"}`: -32001,
			`"method":"SendMessage","params":{"message":{"messageId":"m-1","role":"ROLE_USER","parts":[{"text":"x"}],"metadata":{"capability":"\u0000"}}}`: -32602,
			`"method":"SendMessage","params":{"tenant":"\u0000","message":{"messageId":"m-2","role":"ROLE_USER","parts":[{"text":"x"}]}}`:                  -32602,
			`"method":"SendMessage","params":{"message":{"messageId":"m-3","role":"ROLE_USER","taskId":"\u0000","parts":[{"text":"x"}]}}`:                  -32001,
		} {
			resp := h.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,`+call+`}`, "A2A-Version", "1.0")
			require.Contains(t, resp.String(), fmt.Sprintf(`"code":%d,`, want), call)
		}
		h.worker(t, "say-1", h.returns("a\x00b"), "say")
		got := send(t, h.Client, `{"messageId":"m-4","role":"ROLE_USER","parts":[{"text":"\u0000"},{"data":{"\u0000":1}}],"metadata":{"capability":"say","\u0000":"\u0000"}}`)
		require.Equal(t, "a\x00b", got.Artifacts[0].Parts[0].Text)
		require.Equal(t, "\x00", got.History[0].Parts[0].Text)
		var unknown event
		require.Nil(t, rpc(t, h.Client, "SendMessage", `{"tenant":"no-agent","message":`+text("m-5", "x", "", "", "")+`}`, &unknown))
		require.Equal(t, "TASK_STATE_REJECTED", unknown.Task.Status.State)
	})
}

// TestRequests: malformed requests have the codes of the specification.
func TestRequests(t *testing.T) {
	t.Parallel()
	onDatabases(t, "JSON-RPC", func(t *testing.T, h *harness) {
		message := text("m-1", "hello", "nothing", "", "")
		for body, want := range map[string]int{
			`{`: -32700, `[]`: -32600, `"x"`: -32600, `{"jsonrpc":"1.0","id":1,"method":"GetTask"}`: -32600, `{"jsonrpc":"2.0","id":{},"method":"GetTask"}`: -32600,
			`{"jsonrpc":"2.0","id":1}`: -32600, `{"jsonrpc":"2.0","id":1,"method":"tasks/get"}`: -32601, `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":[]}`: -32602,
			`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}`: -32602, `{"jsonrpc":"2.0","id":1,"method":"GetTask"}`: -32602,
			`{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":"none"}}`: -32001, `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{}}`: -32602,
			`{"jsonrpc":"2.0","id":1,"method":"CreateTaskPushNotificationConfig","params":{}}`: -32602,
		} {
			resp := h.Do(t, http.MethodPost, "/a2a", body, "A2A-Version", "1.0")
			require.Equal(t, http.StatusOK, resp.Status, body)
			require.Contains(t, resp.String(), `"code":`+fmt.Sprint(want)+`,`, body)
		}
		resp := h.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":1,"method":"GetTask","params":{"id":7}}`, "A2A-Version", "1.0")
		require.Contains(t, resp.String(), `the value of \"id\" has the wrong type: number`)
		require.Contains(t, h.Do(t, http.MethodPost, "/a2a", `[]`, "A2A-Version", "1.0").String(), `"batches are not supported; send one request of JSON-RPC 2.0"`)
		require.Contains(t, h.Do(t, http.MethodPost, "/a2a", ` "x"`, "A2A-Version", "1.0").String(), `"the body must be an object, a request of JSON-RPC 2.0"`)
		call := `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":{"message":` + message + `}}`
		require.Contains(t, h.Do(t, http.MethodPost, "/a2a", call, "A2A-Version", "2.0").String(), `"code":-32009`)
		require.Contains(t, h.Do(t, http.MethodPost, "/a2a", call).String(), `"code":-32601`, "without a version it is 0.3, which has no SendMessage")
		require.Contains(t, h.Do(t, http.MethodPost, "/a2a", call, "A2A-Version", "1.0", "Content-Type", "text/plain").String(), `"code":-32005`)
		require.Equal(t, http.StatusRequestEntityTooLarge, h.Do(t, http.MethodPost, "/a2a", strings.Repeat(" ", 9<<20), "A2A-Version", "1.0").Status)
		require.Equal(t, http.StatusMethodNotAllowed, h.Do(t, http.MethodGet, "/a2a", "").Status)
	})
	onDatabases(t, "HTTP+JSON", func(t *testing.T, h *harness) {
		message := `{"message":` + text("m-1", "hello", "nothing", "", "") + `}`
		require.Equal(t, http.StatusOK, h.Do(t, http.MethodPost, "/a2a/rest/message:send?A2A-Version=1.0", message).Status)
		for path, want := range map[string]int{
			"POST message:send": http.StatusBadRequest, "GET tasks/none": http.StatusNotFound, "POST tasks/none:cancel": http.StatusNotFound, "POST tasks/none": http.StatusMethodNotAllowed,
			"GET message:send": http.StatusMethodNotAllowed, "GET tasks/": http.StatusNotFound, "GET nothing": http.StatusNotFound, "GET tasks/x/y": http.StatusNotFound,
			"GET tasks/x/pushNotificationConfigs": http.StatusNotFound, "DELETE tasks/x/pushNotificationConfigs/y": http.StatusNotFound, "PUT tasks/x/pushNotificationConfigs/y": http.StatusMethodNotAllowed,
		} {
			method, at, _ := strings.Cut(path, " ")
			resp := h.Do(t, method, "/a2a/rest/"+at, "", "A2A-Version", "1.0")
			require.Equal(t, want, resp.Status, "%s: %s", path, resp)
			require.Contains(t, resp.String(), `"error":{"code":`+fmt.Sprint(want), path)
		}
		for version, want := range map[string]int{"": http.StatusBadRequest, "0.3": http.StatusBadRequest, "99.0": http.StatusBadRequest} {
			resp := h.Do(t, http.MethodPost, "/a2a/rest/message:send", message, "A2A-Version", version)
			require.Equal(t, want, resp.Status, version)
			require.Contains(t, resp.String(), "VERSION_NOT_SUPPORTED")
		}
		resp := h.Do(t, http.MethodPost, "/a2a/rest/message:send", message, "A2A-Version", "1.0", "Content-Type", "text/plain")
		require.Equal(t, http.StatusUnsupportedMediaType, resp.Status)
		require.Equal(t, http.StatusBadRequest, h.Do(t, http.MethodPost, "/a2a/rest/message:send", "{", "A2A-Version", "1.0").Status)
		require.Equal(t, http.StatusNotFound, h.Do(t, http.MethodGet, "/a2a/else", "").Status)
	})
	onDatabases(t, "messages", func(t *testing.T, h *harness) {
		for _, wrong := range []string{
			`{"message":null}`, `{"message":{}}`, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[]}}`, `{"message":{"messageId":"m","role":"ROLE_AGENT","parts":[{"text":"x"}]}}`,
			`{"message":{"messageId":"","role":"ROLE_USER","parts":[{"text":"x"}]}}`, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{}]}}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x","url":"y"}]}}`, `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"raw":"?"}]}}`,
			`{"message":{"messageId":"m","role":"ROLE_USER","parts":[null]}}`, `{"message":{"messageId":"m","role":"ROLE_USER","parts":"x"}}`, `{"message":7}`,
			`{"message":{"messageId":"m\u0001","role":"ROLE_USER","parts":[{"text":"x"}]}}`, `{"message":{"messageId":"m","role":"ROLE_USER","contextId":"` + strings.Repeat("x", 65) + `","parts":[{"text":"x"}]}}`,
		} {
			resp := h.Do(t, http.MethodPost, "/a2a/rest/message:send", wrong, "A2A-Version", "1.0")
			require.Equal(t, http.StatusBadRequest, resp.Status, "%s: %s", wrong, resp)
		}
		snake := `{"message":{"message_id":"m","role":"ROLE_USER","parts":[{"raw":"eA","media_type":"text/x"}],"context_id":"c","metadata":{"capability":"nothing"}},"configuration":{"return_immediately":true,"history_length":0}}`
		var out event
		h.Do(t, http.MethodPost, "/a2a/rest/message:send", snake, "A2A-Version", "1.0").Decode(t, http.StatusOK, &out)
		require.Equal(t, "c", out.Task.ContextID)
		require.Empty(t, out.Task.History)
	})
}
