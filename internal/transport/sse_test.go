package transport_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	"comet/internal/transport"
	"comet/models"
)

// event is a received server-sent event.
type event struct{ name, id, data, comment string }

// sseClient is the agent's end of a stream.
type sseClient struct {
	t      *testing.T
	resp   *http.Response
	reader *bufio.Reader
}

func (f *fixture) openStream(t *testing.T, token, query string, headers ...string) *sseClient {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), "GET", f.url+"/api/agent/stream"+query, nil)
	require.NoError(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := httpClient.Do(req)
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

// nextEvent returns the next event that is not a heartbeat.
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

func TestSSE(t *testing.T) {
	t.Parallel()
	runCase(t, "sends hello and then messages", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		l := f.openStream(t, token, "?concurrency=2&versions=1.0")
		hello := l.nextEvent()
		require.Equal(t, "hello", hello.name)
		require.Contains(t, hello.data, `"concurrency":2`)
		w := f.WaitForWorker(t, "ada", online)
		require.Equal(t, []any{transport.SSE, 2}, []any{w.Transport, w.Concurrency})
		f.submit(t, "ada")
		e := l.nextEvent()
		require.Equal(t, "message", e.name)
		var n note
		require.NoError(t, json.Unmarshal([]byte(e.data), &n))
		require.Equal(t, e.id, n.ID)
		f.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":["`+e.id+`"]}`)
		f.WaitForInbox(t, "ada", 0)
	})
	runCase(t, "delivers more after an acknowledgement", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		l := f.openStream(t, token, "")
		l.nextEvent()
		f.enqueue(t, "ada", 102)
		first := l.nextEvent().id
		for range 100 {
			l.nextEvent()
		}
		f.do(t, "POST", "/api/agent/inbox/ack", token, `{"message_ids":["`+first+`"]}`)
		require.NotEmpty(t, l.nextEvent().id)
	})
	runCase(t, "delivers unacknowledged messages again whatever Last-Event-ID says", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		l := f.openStream(t, token, "")
		l.nextEvent()
		f.enqueue(t, "ada", 1)
		e := l.nextEvent()
		require.NoError(t, l.resp.Body.Close())
		f.WaitForWorker(t, "ada", offline)
		l = f.openStream(t, token, "", "Last-Event-ID", e.id)
		l.nextEvent()
		require.Equal(t, e.id, l.nextEvent().id)
	})
	runCase(t, "keeps the agent online by heartbeats", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, f *fixture) {
		l := f.openStream(t, f.agent(t, "ada"), "")
		l.nextEvent()
		for range 3 {
			f.DB.Clock.Advance(30 * time.Second)
			e, ok := l.next()
			require.True(t, ok)
			require.Equal(t, "heartbeat", e.comment)
			f.waitForHeartbeat(t, "ada")
		}
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State)
	})
	runCase(t, "ends with bye when the server drains", nil, func(t *testing.T, f *fixture) {
		l := f.openStream(t, f.agent(t, "ada"), "")
		l.nextEvent()
		f.transports.Drain()
		bye := l.nextEvent()
		require.Equal(t, "bye", bye.name)
		require.JSONEq(t, `{"bye":{"reason":"draining"}}`, bye.data)
		_, ok := l.next()
		require.False(t, ok)
		require.NoError(t, f.transports.Stop(t.Context()))
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State, "it will reconnect")
	})
	runCase(t, "ends when the agent connects over another transport", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		l := f.openStream(t, token, "")
		l.nextEvent()
		f.connect(t, token, "")
		require.JSONEq(t, `{"bye":{"reason":"replaced"}}`, l.nextEvent().data)
		require.Equal(t, transport.WebSocket, f.WaitForWorker(t, "ada", online).Transport)
	})
	runCase(t, "ends when the token is revoked", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		issued := f.token(t, "ada")
		l := f.openStream(t, issued.Secret, "")
		l.nextEvent()
		require.NoError(t, f.auth.Revoke(t.Context(), testkit.Admin(), issued.Token.ID, nil))
		require.JSONEq(t, `{"bye":{"reason":"token not accepted"}}`, l.nextEvent().data)
	})
	runCase(t, "ends when the agent does not read", &transport.Options{WriteTimeout: 200 * time.Millisecond}, func(t *testing.T, f *fixture) {
		f.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			return [][]byte{[]byte(strings.Repeat("x", 8<<20))}, nil
		}
		l := f.openStream(t, f.agent(t, "ada"), "")
		l.nextEvent()
		f.enqueue(t, "ada", 20)
		f.WaitForWorker(t, "ada", offline)
		f.WaitForInbox(t, "ada", 20)
	})
}
