package a2a_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/testkit"
	"comet/models"
)

// revocable returns a client, and a function that revokes its token.
func (h *harness) revocable(t *testing.T) (c *testkit.Client, revoke func()) {
	t.Helper()
	c = h.client(t, "", models.ScopeMessagesSend)
	by, err := h.auth.Verify(t.Context(), c.Token)
	require.NoError(t, err)
	return c, func() { require.NoError(t, h.auth.Revoke(t.Context(), testkit.Admin(), by.TokenID, nil)) }
}

// TestRevokedToken: streams and waiting requests end when their token was revoked.
func TestRevokedToken(t *testing.T) {
	t.Parallel()
	onDatabases(t, "a stream", func(t *testing.T, h *harness) {
		steps := make(chan func(context.Context, orchestrator.TaskWithInput))
		h.worker(t, "work-1", h.held(steps), "work")
		c, revoke := h.revocable(t)
		s := open(t, c, "/message:stream", `{"message":`+text("m-1", "hello", "work", "", "")+`}`)
		s.must()
		revoke()
		steps <- h.progress(50, "half")
		for _, e := range s.rest() {
			require.NotEqual(t, "TASK_STATE_COMPLETED", e.state())
		}
	})
	onDatabases(t, "a request that waits", func(t *testing.T, h *harness) {
		steps := make(chan func(context.Context, orchestrator.TaskWithInput))
		h.worker(t, "work-1", h.held(steps), "work")
		c, revoke := h.revocable(t)
		challenge := ""
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			resp, err := c.Send(t.Context(), http.MethodPost, "/a2a/rest/message:send", `{"message":`+text("m-1", "hello", "work", "", "")+`}`, "A2A-Version", "1.0")
			if err == nil && resp.Status == http.StatusUnauthorized {
				challenge = resp.Header.Get("WWW-Authenticate")
			}
		}()
		steps <- h.progress(50, "half") // the task is running
		revoke()
		steps <- h.complete("secret")
		<-ended
		require.Contains(t, challenge, "invalid_token", "a revoked token receives no result")
	})
}

// TestMessagesAtTheSameTime: different messages of one task are all kept.
func TestMessagesAtTheSameTime(t *testing.T) {
	t.Parallel()
	at := func(h *harness, t *testing.T, taskID string, texts ...string) (statuses []int) {
		statuses = make([]int, len(texts))
		var sending sync.WaitGroup
		for i, said := range texts {
			sending.Go(func() {
				resp, err := h.Send(t.Context(), http.MethodPost, "/a2a/rest/message:send", `{"message":`+text(fmt.Sprint("m-", said, i), said, "", "", taskID)+`}`, "A2A-Version", "1.0")
				if err == nil {
					statuses[i] = resp.Status
				}
			})
		}
		sending.Wait()
		return statuses
	}
	onDatabases(t, "without a choice", func(t *testing.T, h *harness) {
		h.worker(t, "one", h.returns("translated"), "translate", "summarize")
		asked := send(t, h.Client, text("m-1", "translate or summarize", "", "", ""))
		for _, status := range at(h, t, asked.ID, "a", "b", "c", "d", "e", "f", "g", "h") {
			require.Equal(t, http.StatusOK, status)
		}
		require.Len(t, getTask(t, h.Client, asked.ID).History, 9)
	})
	onDatabases(t, "one choice wins", func(t *testing.T, h *harness) {
		h.worker(t, "one", h.returns("done"), "translate", "summarize")
		asked := send(t, h.Client, text("m-1", "translate or summarize", "", "", ""))
		won := 0
		for _, status := range at(h, t, asked.ID, "translate", "summarize", "translate", "summarize") {
			if status == http.StatusOK {
				won++
			} else {
				require.Equal(t, http.StatusBadRequest, status)
			}
		}
		require.Equal(t, 1, won)
		require.Len(t, getTask(t, h.Client, asked.ID).History, 2)
	})
}

// TestLimits: sizes are limited.
func TestLimits(t *testing.T) {
	t.Parallel()
	onDatabases(t, "the bytes of a page", func(t *testing.T, h *harness) {
		for i := range 3 {
			send(t, h.Client, text(fmt.Sprint("m-", i), strings.Repeat("x", 5<<20), "nothing", "", ""))
		}
		var seen []string
		for token, pages := "", 1; ; pages++ {
			var page struct {
				Tasks         []task
				TotalSize     int
				NextPageToken string
			}
			require.Nil(t, rpc(t, h.Client, "ListTasks", `{"pageToken":"`+token+`"}`, &page))
			require.Equal(t, 3, page.TotalSize)
			for _, one := range page.Tasks {
				require.Len(t, one.History[0].Parts[0].Text, 5<<20)
				seen = append(seen, one.ID)
			}
			if token = page.NextPageToken; token == "" {
				require.Equal(t, 2, pages)
				break
			}
		}
		require.Len(t, seen, 3)
	})
	onDatabases(t, "ids and replies", func(t *testing.T, h *harness) {
		resp := h.Do(t, http.MethodPost, "/a2a", `{"jsonrpc":"2.0","id":"`+strings.Repeat("x", 300)+`","method":"GetTask","params":{"id":"x"}}`, "A2A-Version", "1.0")
		require.Contains(t, resp.String(), `"code":-32600`)
		h.worker(t, "ask-1", h.asks("what?"), "ask")
		asked := send(t, h.Client, text("m-1", "hello", "ask", "", ""))
		long, err := json.Marshal(map[string]any{"messageId": "m-2", "role": "ROLE_USER", "taskId": asked.ID, "parts": []any{map[string]string{"text": "x"}}, "metadata": map[string]string{"x": strings.Repeat("x", 64<<10)}})
		require.NoError(t, err)
		require.Equal(t, -32602, rpc(t, h.Client, "SendMessage", `{"message":`+string(long)+`}`, nil).Code)
	})
}

// TestBudget: metadata.budget of a message or of its request is the budget of the task.
func TestBudget(t *testing.T) {
	t.Parallel()
	onDatabases(t, "of a task", func(t *testing.T, h *harness) {
		h.worker(t, "work-1", h.returns("done"), "work")
		c := h.client(t, "", models.ScopeMessagesSend)
		with := func(id, budget string) string {
			return `{"messageId":"` + id + `","role":"ROLE_USER","parts":[{"text":"hello"}],"metadata":{"capability":"work","budget":` + budget + `}}`
		}
		made := send(t, c, with("m-1", "100"))
		stored, err := h.Task(t.Context(), made.ID)
		require.NoError(t, err)
		require.EqualValues(t, 100, *stored.Budget)
		var out event
		require.Nil(t, rpc(t, c, "SendMessage", `{"message":`+text("m-2", "hello", "work", "", "")+`,"metadata":{"budget":7}}`, &out))
		stored, err = h.Task(t.Context(), out.Task.ID)
		require.NoError(t, err)
		require.EqualValues(t, 7, *stored.Budget)
		refused := send(t, c, with("m-3", "1000000000000"))
		require.Equal(t, "TASK_STATE_REJECTED", refused.Status.State)
		require.Contains(t, refused.Status.Message.Parts[0].Text, "daily budget")
		for i, wrong := range []string{"0", "-1", "1.5", `"100"`, "null", "1000000000001", "1e300"} {
			failed := rpc(t, c, "SendMessage", `{"message":`+with(fmt.Sprint("w-", i), wrong)+`}`, nil)
			require.NotNil(t, failed, wrong)
			require.Equal(t, -32602, failed.Code, wrong)
			require.Contains(t, failed.Message, "metadata.budget must be a number of tokens from 1 to 1000000000000", wrong)
		}
	})
}
