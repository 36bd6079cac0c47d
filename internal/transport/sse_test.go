package transport_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/transport"
	"comet/models"
)

// event is a server-sent event as it was read.
type event struct{ name, id, data, comment string }

// sseClient is an agent's end of a stream.
type sseClient struct {
	t      *testing.T
	resp   *http.Response
	reader *bufio.Reader
}

func (h *fixture) openStream(t *testing.T, token, query string, headers ...string) *sseClient {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", h.url+"/api/agent/stream"+query, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { _ = resp.Body.Close() })
	require.Equal(t, http.StatusOK, resp.StatusCode)
	require.Equal(t, "text/event-stream", resp.Header.Get("Content-Type"))
	return &sseClient{t, resp, bufio.NewReader(resp.Body)}
}

// next returns the next event; ok is false at the end.
func (l *sseClient) next() (e event, ok bool) {
	for {
		line, err := l.reader.ReadString('\n')
		if err != nil {
			return e, false
		}
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch {
		case line == "\n":
			return e, true
		case name == "event":
			e.name = value
		case name == "id":
			e.id = value
		case name == "data":
			e.data += value
		case name == "":
			e.comment = value
		}
	}
}

// nextEvent returns the next event that is none of the heartbeats.
func (l *sseClient) nextEvent() event {
	l.t.Helper()
	for {
		e, ok := l.next()
		require.True(l.t, ok, "the stream ended")
		if e.name != "" {
			return e
		}
	}
}

func TestAStream(t *testing.T) {
	t.Parallel()
	runCase(t, "begins with a hello and hands over what comes", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		l := h.openStream(t, token, "?concurrency=2&versions=1.0")
		hello := l.nextEvent()
		require.Equal(t, "hello", hello.name)
		require.Contains(t, hello.data, `"concurrency":2`)
		w := h.waitForWorker(t, "ada", online)
		require.Equal(t, []any{transport.SSE, 2}, []any{w.Transport, w.Concurrency})
		h.submit(t, "ada")
		e := l.nextEvent()
		require.Equal(t, "message", e.name)
		var n note
		require.NoError(t, json.Unmarshal([]byte(e.data), &n))
		require.Equal(t, e.id, n.ID)
		h.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":["`+e.id+`"]}`)
		h.waitForInbox(t, "ada", 0)
	})
	runCase(t, "has room for more once something is acknowledged", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		l := h.openStream(t, token, "")
		l.nextEvent()
		h.enqueue(t, "ada", 102)
		first := l.nextEvent().id
		for range 100 {
			l.nextEvent()
		}
		h.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":["`+first+`"]}`)
		require.NotEmpty(t, l.nextEvent().id)
	})
	runCase(t, "hands over again on the next one what was not acknowledged, whatever was seen last", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		l := h.openStream(t, token, "")
		l.nextEvent()
		h.enqueue(t, "ada", 1)
		e := l.nextEvent()
		require.NoError(t, l.resp.Body.Close())
		h.waitForWorker(t, "ada", offline)
		l = h.openStream(t, token, "", "Last-Event-ID", e.id)
		l.nextEvent()
		require.Equal(t, e.id, l.nextEvent().id)
	})
	runCase(t, "shows every heartbeat that it is there, which keeps the agent online", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, h *fixture) {
		l := h.openStream(t, h.agent(t, "ada"), "")
		l.nextEvent()
		for range 3 {
			h.db.Clock.Advance(30 * time.Second)
			e, ok := l.next()
			require.True(t, ok)
			require.Equal(t, "heartbeat", e.comment)
			h.waitForHeartbeat(t, "ada")
		}
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State)
	})
	runCase(t, "ends with a good-bye when the server does", nil, func(t *testing.T, h *fixture) {
		l := h.openStream(t, h.agent(t, "ada"), "")
		l.nextEvent()
		h.transports.Drain()
		bye := l.nextEvent()
		require.Equal(t, "bye", bye.name)
		require.JSONEq(t, `{"bye":{"reason":"draining"}}`, bye.data)
		_, ok := l.next()
		require.False(t, ok)
		require.NoError(t, h.transports.Stop(t.Context()))
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State, "it comes back")
	})
	runCase(t, "ends when the agent comes by another way", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		l := h.openStream(t, token, "")
		l.nextEvent()
		h.connect(t, token, "")
		require.JSONEq(t, `{"bye":{"reason":"replaced"}}`, l.nextEvent().data)
		require.Equal(t, transport.WebSocket, h.waitForWorker(t, "ada", online).Transport)
	})
	runCase(t, "ends when the token is revoked", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, h *fixture) {
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		l := h.openStream(t, issued.Secret, "")
		l.nextEvent()
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		require.JSONEq(t, `{"bye":{"reason":"token not accepted"}}`, l.nextEvent().data)
	})
	runCase(t, "ends when the agent does not read", &transport.Options{WriteTimeout: 200 * time.Millisecond}, func(t *testing.T, h *fixture) {
		h.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			return [][]byte{[]byte(strings.Repeat("x", 8<<20))}, nil
		}
		l := h.openStream(t, h.agent(t, "ada"), "")
		l.nextEvent()
		h.enqueue(t, "ada", 20)
		h.waitForWorker(t, "ada", offline)
		h.waitForInbox(t, "ada", 20)
	})
}
