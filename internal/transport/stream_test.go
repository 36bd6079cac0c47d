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

// listener is an agent's end of a stream.
type listener struct {
	t      *testing.T
	resp   *http.Response
	reader *bufio.Reader
}

func (h *house) listen(t *testing.T, token, query string, headers ...string) *listener {
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
	return &listener{t, resp, bufio.NewReader(resp.Body)}
}

// next returns the next event; ok is false at the end.
func (l *listener) next() (e event, ok bool) {
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

// hear returns the next event that is none of the heartbeats.
func (l *listener) hear() event {
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
	rule(t, "begins with a hello and hands over what comes", nil, func(t *testing.T, h *house) {
		token := h.agent(t, "ada")
		l := h.listen(t, token, "?concurrency=2&versions=1.0")
		hello := l.hear()
		require.Equal(t, "hello", hello.name)
		require.Contains(t, hello.data, `"concurrency":2`)
		w := h.worker(t, "ada", online)
		require.Equal(t, []any{transport.Stream, 2}, []any{w.Transport, w.Concurrency})
		h.submit(t, "ada")
		e := l.hear()
		require.Equal(t, "message", e.name)
		var n note
		require.NoError(t, json.Unmarshal([]byte(e.data), &n))
		require.Equal(t, e.id, n.ID)
		h.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":["`+e.id+`"]}`)
		h.inboxOf(t, "ada", 0)
	})
	rule(t, "has room for more once something is acknowledged", nil, func(t *testing.T, h *house) {
		token := h.agent(t, "ada")
		l := h.listen(t, token, "")
		l.hear()
		h.tell(t, "ada", 102)
		first := l.hear().id
		for range 100 {
			l.hear()
		}
		h.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":["`+first+`"]}`)
		require.NotEmpty(t, l.hear().id)
	})
	rule(t, "hands over again on the next one what was not acknowledged, whatever was seen last", nil, func(t *testing.T, h *house) {
		token := h.agent(t, "ada")
		l := h.listen(t, token, "")
		l.hear()
		h.tell(t, "ada", 1)
		e := l.hear()
		require.NoError(t, l.resp.Body.Close())
		h.worker(t, "ada", offline)
		l = h.listen(t, token, "", "Last-Event-ID", e.id)
		l.hear()
		require.Equal(t, e.id, l.hear().id)
	})
	rule(t, "shows every heartbeat that it is there, which keeps the agent online", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, h *house) {
		l := h.listen(t, h.agent(t, "ada"), "")
		l.hear()
		for range 3 {
			h.db.Clock.Advance(30 * time.Second)
			e, ok := l.next()
			require.True(t, ok)
			require.Equal(t, "heartbeat", e.comment)
			h.seenNow(t, "ada")
		}
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State)
	})
	rule(t, "ends with a good-bye when the server does", nil, func(t *testing.T, h *house) {
		l := h.listen(t, h.agent(t, "ada"), "")
		l.hear()
		h.links.Drain()
		bye := l.hear()
		require.Equal(t, "bye", bye.name)
		require.JSONEq(t, `{"bye":{"reason":"draining"}}`, bye.data)
		_, ok := l.next()
		require.False(t, ok)
		require.NoError(t, h.links.Stop(t.Context()))
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State, "it comes back")
	})
	rule(t, "ends when the agent comes by another way", nil, func(t *testing.T, h *house) {
		token := h.agent(t, "ada")
		l := h.listen(t, token, "")
		l.hear()
		h.connect(t, token, "")
		require.JSONEq(t, `{"bye":{"reason":"replaced"}}`, l.hear().data)
		require.Equal(t, transport.WebSocket, h.worker(t, "ada", online).Transport)
	})
	rule(t, "ends when the token is revoked", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, h *house) {
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		l := h.listen(t, issued.Secret, "")
		l.hear()
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		require.JSONEq(t, `{"bye":{"reason":"token not accepted"}}`, l.hear().data)
	})
	rule(t, "ends when the agent does not read", &transport.Options{WriteTimeout: 200 * time.Millisecond}, func(t *testing.T, h *house) {
		h.speech.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			return [][]byte{[]byte(strings.Repeat("x", 8<<20))}, nil
		}
		l := h.listen(t, h.agent(t, "ada"), "")
		l.hear()
		h.tell(t, "ada", 20)
		h.worker(t, "ada", offline)
		h.inboxOf(t, "ada", 20)
	})
}
