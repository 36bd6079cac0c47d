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

// poll asks for an inbox and returns what it is told.
func (h *fixture) poll(t *testing.T, token, query string) []note {
	t.Helper()
	return inboxNotes(t, h.do(t, "GET", "/api/agent/inbox"+query, token, ""))
}

// inboxNotes reads the answer to somebody who asks for an inbox.
func inboxNotes(t *testing.T, a response) []note {
	t.Helper()
	require.Equal(t, http.StatusOK, a.StatusCode, a.body)
	var out struct {
		Messages []note `json:"messages"`
	}
	require.NoError(t, json.Unmarshal([]byte(a.body), &out))
	require.NotNil(t, out.Messages, "a list in any case")
	return out.Messages
}

func TestAnInboxThatIsAskedFor(t *testing.T) {
	t.Parallel()
	runCase(t, "makes the agent one that takes work", nil, func(t *testing.T, h *fixture) {
		require.Empty(t, h.poll(t, h.agent(t, "ada"), "?concurrency=4"))
		w := h.CachedWorker("ada")
		require.Equal(t, []any{models.WorkerOnline, "notes", transport.Poll, 4}, []any{w.State, w.Protocol, w.Transport, w.Concurrency})
	})
	runCase(t, "hands over what is there, and not again for a while", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		h.enqueue(t, "ada", 3)
		first := h.poll(t, token, "?limit=2")
		require.Len(t, first, 2)
		rest := h.poll(t, token, "")
		require.Len(t, rest, 1)
		require.Empty(t, h.poll(t, token, ""))
		h.db.Clock.Advance(29 * time.Second)
		require.Empty(t, h.poll(t, token, ""))
		h.db.Clock.Advance(time.Second)
		require.Equal(t, append(first, rest...), h.poll(t, token, ""), "the same ones with the same ids")
		h.waitForMetric(t, 3, "comet_transport_redeliveries_total", "poll")
		h.waitForMetric(t, 6, "comet_transport_messages_total", "out", "poll")
	})
	runCase(t, "forgets what is acknowledged", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		h.enqueue(t, "ada", 2)
		got := h.poll(t, token, "")
		body, err := json.Marshal(map[string][]string{"message_ids": {got[0].ID, got[1].ID, "unknown"}})
		require.NoError(t, err)
		require.JSONEq(t, `{"acknowledged":2}`, h.do(t, "POST", "/api/agent/inbox/ack", token, string(body)).body)
		h.waitForInbox(t, "ada", 0)
		h.db.Clock.Advance(time.Minute)
		require.Empty(t, h.poll(t, token, ""))
	})
	runCase(t, "acknowledges for its own agent only", nil, func(t *testing.T, h *fixture) {
		h.agent(t, "ada")
		h.enqueue(t, "ada", 1)
		id := h.waitForInbox(t, "ada", 1)[0].ID
		a := h.do(t, "POST", "/api/agent/inbox/ack", h.agent(t, "eve"), `{"message_ids":["`+id+`"]}`)
		require.JSONEq(t, `{"acknowledged":0}`, a.body)
		h.waitForInbox(t, "ada", 1)
	})
	runCase(t, "answers as soon as something comes", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		got := h.doAsync(t.Context(), "GET", "/api/agent/inbox?wait=60", token, "")
		h.waitForWorker(t, "ada", online)
		task := h.submit(t, "ada")
		require.Equal(t, "assign", inboxNotes(t, <-got)[0].Do)
		require.Equal(t, task.ID, h.waitForInbox(t, "ada", 1)[0].TaskID)
	})
	runCase(t, "answers with nothing when the wait is over", nil, func(t *testing.T, h *fixture) {
		require.Empty(t, h.poll(t, h.agent(t, "ada"), "?wait=1"))
	})
	runCase(t, "is a sign of life as long as it waits", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, h *fixture) {
		ctx, cancel := context.WithCancel(t.Context())
		token := h.agent(t, "ada")
		done := h.doAsync(ctx, "GET", "/api/agent/inbox?wait=60", token, "")
		h.waitForWorker(t, "ada", online)
		for range 3 {
			h.db.Clock.Advance(30 * time.Second)
			h.waitForHeartbeat(t, "ada")
		}
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State)
		cancel()
		<-done
		h.waitForMetric(t, 0, "comet_transport_connections", "poll")
		h.db.Clock.Advance(time.Minute)
		h.waitForWorker(t, "ada", offline)
		h.poll(t, token, "")
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State, "asking brings it back")
	})
	runCase(t, "ends at once when the server does", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		got := h.doAsync(t.Context(), "GET", "/api/agent/inbox?wait=60", token, "")
		h.waitForWorker(t, "ada", online)
		h.waitForMetric(t, 1, "comet_transport_connections", "poll")
		h.transports.Drain()
		require.Empty(t, inboxNotes(t, <-got))
		require.Equal(t, http.StatusServiceUnavailable, h.do(t, "GET", "/api/agent/inbox", token, "").StatusCode)
	})
	runCase(t, "puts no more into one answer than is good", nil, func(t *testing.T, h *fixture) {
		h.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			return [][]byte{[]byte(`{"id":"` + m.ID + `","text":"` + strings.Repeat("x", 5<<20) + `"}`)}, nil
		}
		token := h.agent(t, "ada")
		h.enqueue(t, "ada", 2)
		require.Len(t, h.poll(t, token, ""), 1, "two are more than 8 MiB")
		require.Len(t, h.poll(t, token, ""), 1)
	})
	runCase(t, "puts what belongs together into one answer, and begins nothing behind it", nil, func(t *testing.T, h *fixture) {
		h.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			part := []byte(`{"id":"` + m.ID + `","text":"` + strings.Repeat("x", 3<<20) + `"}`)
			return [][]byte{part, part, part}, nil
		}
		token := h.agent(t, "ada")
		h.enqueue(t, "ada", 2)
		first := h.poll(t, token, "")
		require.Len(t, first, 3)
		require.Equal(t, first[0].ID, first[2].ID)
		second := h.poll(t, token, "")
		require.Len(t, second, 3)
		require.NotEqual(t, first[0].ID, second[0].ID)
	})
	runCase(t, "goes on with a long inbox as it is acknowledged", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		h.enqueue(t, "ada", 350)
		for left := 350; left > 0; {
			var ids []string
			for _, n := range h.poll(t, token, "?limit=1000") {
				ids = append(ids, n.ID)
			}
			require.NotEmpty(t, ids)
			body, err := json.Marshal(map[string][]string{"message_ids": ids})
			require.NoError(t, err)
			h.do(t, "POST", "/api/agent/inbox/ack", token, string(body))
			left -= len(ids)
		}
		h.waitForInbox(t, "ada", 0)
	})
	runCase(t, "refuses what it cannot read", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		for _, query := range []string{"?wait=61", "?wait=x", "?limit=0", "?limit=1001", "?concurrency=0", "?concurrency=1001", "?what=1", "?wait=1&wait=2", "?%zz"} {
			require.Equal(t, http.StatusBadRequest, h.do(t, "GET", "/api/agent/inbox"+query, token, "").StatusCode, query)
		}
		require.Equal(t, http.StatusUnprocessableEntity, h.do(t, "GET", "/api/agent/inbox?versions=9.0", token, "").StatusCode)
		require.Equal(t, http.StatusBadRequest, h.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":"x"}`).StatusCode)
		require.Equal(t, http.StatusUnauthorized, h.do(t, "GET", "/api/agent/inbox", h.token(t, "", models.ScopeAdmin).Secret, "").StatusCode)
		require.Equal(t, http.StatusMethodNotAllowed, h.do(t, "HEAD", "/api/agent/inbox", token, "").StatusCode)
	})
}
