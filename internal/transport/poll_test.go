package transport_test

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/transport"
	"comet/models"
)

// poll polls an inbox and returns its messages.
func (f *fixture) poll(t *testing.T, token, query string) []note {
	t.Helper()
	return inboxNotes(t, f.do(t, "GET", "/api/agent/inbox"+query, token, ""))
}

// inboxNotes parses the response to a poll.
func inboxNotes(t *testing.T, a response) []note {
	t.Helper()
	require.Equal(t, http.StatusOK, a.StatusCode, a.body)
	var out struct {
		Messages []note `json:"messages"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &out))
	require.NotNil(t, out.Messages, "the list is never null")
	return out.Messages
}

func TestPoll(t *testing.T) {
	t.Parallel()
	runCase(t, "makes the agent available", nil, func(t *testing.T, f *fixture) {
		require.Empty(t, f.poll(t, f.agent(t, "ada"), "?concurrency=4"))
		w := f.CachedWorker("ada")
		require.Equal(t, []any{models.WorkerOnline, "notes", transport.Poll, 4}, []any{w.State, w.Protocol, w.Transport, w.Concurrency})
	})
	runCase(t, "returns a message again only after a while", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		f.enqueue(t, "ada", 3)
		first := f.poll(t, token, "?limit=2")
		require.Len(t, first, 2)
		rest := f.poll(t, token, "")
		require.Len(t, rest, 1)
		require.Empty(t, f.poll(t, token, ""))
		f.DB.Clock.Advance(29 * time.Second)
		require.Empty(t, f.poll(t, token, ""))
		f.DB.Clock.Advance(time.Second)
		require.Equal(t, append(first, rest...), f.poll(t, token, ""), "the same messages with the same ids")
		f.waitForMetric(t, 3, "comet_transport_redeliveries_total", "poll")
		f.waitForMetric(t, 6, "comet_transport_messages_total", "out", "poll")
	})
	runCase(t, "does not return acknowledged messages", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		f.enqueue(t, "ada", 2)
		got := f.poll(t, token, "")
		body, err := json.Marshal(map[string][]string{"message_ids": {got[0].ID, got[1].ID, "unknown"}})
		require.NoError(t, err)
		require.JSONEq(t, `{"acknowledged":2}`, f.do(t, "POST", "/api/agent/inbox/ack", token, string(body)).body)
		f.WaitForInbox(t, "ada", 0)
		f.DB.Clock.Advance(time.Minute)
		require.Empty(t, f.poll(t, token, ""))
	})
	runCase(t, "acknowledges messages of its own agent only", nil, func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		f.enqueue(t, "ada", 1)
		id := f.WaitForInbox(t, "ada", 1)[0].ID
		a := f.do(t, "POST", "/api/agent/inbox/ack", f.agent(t, "eve"), `{"message_ids":["`+id+`"]}`)
		require.JSONEq(t, `{"acknowledged":0}`, a.body)
		f.WaitForInbox(t, "ada", 1)
	})
	runCase(t, "returns as soon as a message arrives", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		got := f.doAsync(t.Context(), "GET", "/api/agent/inbox?wait=60", token, "")
		f.WaitForWorker(t, "ada", online)
		task := f.submit(t, "ada")
		require.Equal(t, "assign", inboxNotes(t, <-got)[0].Do)
		require.Equal(t, task.ID, f.WaitForInbox(t, "ada", 1)[0].TaskID)
	})
	runCase(t, "returns nothing when the wait is over", nil, func(t *testing.T, f *fixture) {
		require.Empty(t, f.poll(t, f.agent(t, "ada"), "?wait=1"))
	})
	runCase(t, "keeps the agent online while it waits", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, f *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		token := f.agent(t, "ada")
		done := f.doAsync(ctx, "GET", "/api/agent/inbox?wait=60", token, "")
		f.WaitForWorker(t, "ada", online)
		for range 3 {
			f.DB.Clock.Advance(30 * time.Second)
			f.waitForHeartbeat(t, "ada")
		}
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State)
		cancel()
		<-done
		f.waitForMetric(t, 0, "comet_transport_connections", "poll")
		f.DB.Clock.Advance(time.Minute)
		f.WaitForWorker(t, "ada", offline)
		f.poll(t, token, "")
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State, "polling brings it back online")
	})
	runCase(t, "ends when the server drains", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		got := f.doAsync(t.Context(), "GET", "/api/agent/inbox?wait=60", token, "")
		f.WaitForWorker(t, "ada", online)
		f.waitForMetric(t, 1, "comet_transport_connections", "poll")
		f.transports.Drain()
		require.Empty(t, inboxNotes(t, <-got))
		require.Equal(t, http.StatusServiceUnavailable, f.do(t, "GET", "/api/agent/inbox", token, "").StatusCode)
	})
	runCase(t, "limits the length of a response", nil, func(t *testing.T, f *fixture) {
		f.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			return [][]byte{[]byte(`{"id":"` + m.ID + `","text":"` + strings.Repeat("x", 5<<20) + `"}`)}, nil
		}
		token := f.agent(t, "ada")
		f.enqueue(t, "ada", 2)
		require.Len(t, f.poll(t, token, ""), 1, "two are more than 8 MiB")
		require.Len(t, f.poll(t, token, ""), 1)
	})
	runCase(t, "keeps the parts of a message in one response", nil, func(t *testing.T, f *fixture) {
		f.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			part := []byte(`{"id":"` + m.ID + `","text":"` + strings.Repeat("x", 3<<20) + `"}`)
			return [][]byte{part, part, part}, nil
		}
		token := f.agent(t, "ada")
		f.enqueue(t, "ada", 2)
		first := f.poll(t, token, "")
		require.Len(t, first, 3)
		require.Equal(t, first[0].ID, first[2].ID)
		second := f.poll(t, token, "")
		require.Len(t, second, 3)
		require.NotEqual(t, first[0].ID, second[0].ID)
	})
	runCase(t, "returns a long inbox in several responses", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		f.enqueue(t, "ada", 350)
		for left := 350; left > 0; {
			var ids []string
			for _, n := range f.poll(t, token, "?limit=1000") {
				ids = append(ids, n.ID)
			}
			require.NotEmpty(t, ids)
			body, err := json.Marshal(map[string][]string{"message_ids": ids})
			require.NoError(t, err)
			f.do(t, "POST", "/api/agent/inbox/ack", token, string(body))
			left -= len(ids)
		}
		f.WaitForInbox(t, "ada", 0)
	})
	runCase(t, "refuses malformed requests", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		for _, query := range []string{"?wait=61", "?wait=x", "?limit=0", "?limit=1001", "?concurrency=0", "?concurrency=1001", "?what=1", "?wait=1&wait=2", "?%zz"} {
			require.Equal(t, http.StatusBadRequest, f.do(t, "GET", "/api/agent/inbox"+query, token, "").StatusCode, query)
		}
		require.Equal(t, http.StatusUnprocessableEntity, f.do(t, "GET", "/api/agent/inbox?versions=9.0", token, "").StatusCode)
		require.Equal(t, http.StatusBadRequest, f.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":"x"}`).StatusCode)
		require.Equal(t, http.StatusUnauthorized, f.do(t, "GET", "/api/agent/inbox", f.token(t, "", models.ScopeAdmin).Secret, "").StatusCode)
		require.Equal(t, http.StatusBadRequest, f.do(t, "POST", "/api/agent/inbox/ack", token, `{}`).StatusCode)
		a := f.do(t, "HEAD", "/api/agent/inbox", token, "")
		require.Equal(t, http.StatusMethodNotAllowed, a.StatusCode)
		require.Equal(t, "GET", a.Header.Get("Allow"))
	})
}
