package app_test

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// envelopeFrame is a frame of the envelope protocol: an envelope or a control frame.
type envelopeFrame struct {
	Version   string            `json:"protocol_version,omitempty"`
	MessageID string            `json:"message_id,omitempty"`
	From      string            `json:"from_agent,omitempty"`
	To        string            `json:"to_agent,omitempty"`
	Timestamp string            `json:"timestamp,omitempty"`
	TraceID   string            `json:"trace_id,omitempty"`
	RequestID string            `json:"request_id,omitempty"`
	Type      string            `json:"type,omitempty"`
	Payload   map[string]any    `json:"payload,omitempty"`
	Hello     map[string]any    `json:"hello,omitempty"`
	Ack       []string          `json:"ack,omitempty"`
	Bye       map[string]string `json:"bye,omitempty"`
}

func newEnvelope(from, to, kind string, payload map[string]any) envelopeFrame {
	return envelopeFrame{
		Version: "1.0", MessageID: uuid.NewString(), From: from, To: to, Timestamp: time.Now().UTC().Format(time.RFC3339),
		TraceID: uuid.NewString(), RequestID: uuid.NewString(), Type: kind, Payload: payload,
	}
}

// registerAgent registers an agent of the type infra and returns its token.
func registerAgent(t *testing.T, c *client, id string) string {
	t.Helper()
	body := map[string]any{
		"id": id, "name": id, "level": 2, "sphere_id": 8, "frequency_hz": 555, "parent_id": "orch-my-team", "capabilities": []string{"custom:dig"}, "type": "infra",
	}
	status, answer, err := c.do(t.Context(), http.MethodPost, "/api/v1/agents", body)
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	status, answer, err = c.do(t.Context(), http.MethodPost, "/api/v1/tokens", map[string]any{"name": id, "agent_id": id, "scopes": []string{"tasks:read"}})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, status, "%s", answer)
	var issued struct{ Token string }
	require.NoError(t, json.Unmarshal(answer, &issued))
	return issued.Token
}

// agentSocket is an agent's WebSocket.
type agentSocket struct {
	t    *testing.T
	conn *websocket.Conn
	// hello is the first frame.
	hello map[string]any
}

func dialEnvelope(t *testing.T, url, token string) *agentSocket {
	t.Helper()
	conn, resp, err := websocket.Dial(t.Context(), url+"/api/agent/connect?versions=1.0", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"envelope.v1"},
	})
	require.NoError(t, err)
	require.Equal(t, "envelope.v1", resp.Header.Get("Sec-WebSocket-Protocol"))
	t.Cleanup(func() { _ = conn.CloseNow() })
	l := &agentSocket{t: t, conn: conn}
	l.hello = l.next().Hello
	require.NotEmpty(t, l.hello)
	return l
}

func (l *agentSocket) next() envelopeFrame {
	l.t.Helper()
	w, err := l.read()
	require.NoError(l.t, err)
	return w
}

func (l *agentSocket) read() (w envelopeFrame, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), long)
	defer cancel()
	_, raw, err := l.conn.Read(ctx)
	if err == nil {
		err = json.Unmarshal(raw, &w)
	}
	return w, err
}

func (l *agentSocket) send(w envelopeFrame) {
	l.t.Helper()
	raw, err := json.Marshal(w)
	require.NoError(l.t, err)
	require.NoError(l.t, l.conn.Write(l.t.Context(), websocket.MessageText, raw))
}

// asyncResponse is the response to a request sent by doAsync.
type asyncResponse struct {
	status int
	body   []byte
	err    error
}

func doAsync(ctx context.Context, c *client, method, path string, body any, header ...string) <-chan asyncResponse {
	got := make(chan asyncResponse, 1)
	go func() {
		status, answer, err := c.do(ctx, method, path, body, header...)
		got <- asyncResponse{status, answer, err}
	}()
	return got
}

func TestAgentConnections(t *testing.T) {
	t.Parallel()

	t.Run("a task goes from the client to the agent and back", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, database setting) {
			data := t.TempDir()
			p := serve(t, data, database)
			c := newClient(t, p.url(t), adminToken(t, data))
			l := dialEnvelope(t, c.URL, registerAgent(t, c, "digger"))
			request := newEnvelope("orchestrator", "infra", "work_request", map[string]any{
				"task_id": uuid.NewString(), "work_type": "dig", "parameters": map[string]any{"depth": 3}, "hints": map[string]any{"max_duration_seconds": 60},
			})
			got := doAsync(t.Context(), c, http.MethodPost, "/api/agent/message", request, "Prefer", "wait=60")

			job := l.next()
			require.Equal(t, "work_request", job.Type)
			require.Equal(t, request.Payload["task_id"], job.Payload["task_id"])
			l.send(envelopeFrame{Ack: []string{job.MessageID}})
			result := newEnvelope("infra", "orchestrator", "work_result", map[string]any{
				"task_id": job.Payload["task_id"], "status": "success", "exit_code": 0, "output": "a hole",
				"resources_used": map[string]any{"duration_seconds": 1, "gpu_vram_mb": 0, "cpu_time_ms": 1},
			})
			l.send(result)
			require.Equal(t, []string{result.MessageID}, l.next().Ack)

			answer := <-got
			require.NoError(t, answer.err)
			require.Equal(t, http.StatusOK, answer.status, "%s", answer.body)
			var end envelopeFrame
			require.NoError(t, json.Unmarshal(answer.body, &end))
			require.Equal(t, "work_result", end.Type)
			require.Equal(t, "a hole", end.Payload["output"])
			p.stop(t)
		})
	})

	t.Run("an unacknowledged message survives a kill", func(t *testing.T) {
		t.Parallel()
		onEveryDatabase(t, func(t *testing.T, database setting) {
			data := t.TempDir()
			p := serve(t, data, database)
			c := newClient(t, p.url(t), adminToken(t, data))
			token := registerAgent(t, c, "digger")
			l := dialEnvelope(t, c.URL, token)
			status, answer, err := c.do(t.Context(), http.MethodPost, "/api/v1/tasks", map[string]any{"capabilities": []string{"dig"}})
			require.NoError(t, err)
			require.Less(t, status, 300, "%s", answer)
			job := l.next()
			p.kill()

			p = serve(t, data, database)
			again := dialEnvelope(t, p.url(t), token)
			require.Equal(t, job.MessageID, again.next().MessageID)
			p.stop(t)
		})
	})

	t.Run("SIGTERM ends connections with bye", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		p := serve(t, data)
		c := newClient(t, p.url(t), adminToken(t, data))
		l := dialEnvelope(t, c.URL, registerAgent(t, c, "digger"))
		poller := newClient(t, c.URL, registerAgent(t, c, "poller"))
		got := doAsync(t.Context(), poller, http.MethodGet, "/api/agent/inbox?wait=60", nil)
		eventually(t, func() bool { return c.status(t, "/api/v1/workers/poller") == http.StatusOK }, "the agent polls")
		p.terminate(t)
		require.Equal(t, "draining", l.next().Bye["reason"])
		_, err := l.read()
		require.Equal(t, websocket.StatusGoingAway, websocket.CloseStatus(err))
		answer := <-got
		require.NoError(t, answer.err)
		require.JSONEq(t, `{"messages":[]}`, string(answer.body))
		require.Zero(t, p.exit(t), "stderr:\n%s", p.log.end())
		require.NotContains(t, p.log.String(), "cut off")
	})

	t.Run("a task submitted right after a restart waits for its agent", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		p := serve(t, data)
		c := newClient(t, p.url(t), adminToken(t, data))
		token := registerAgent(t, c, "digger")
		dialEnvelope(t, c.URL, token)
		p.stop(t)

		p = serve(t, data)
		c = newClient(t, p.url(t), adminToken(t, data))
		request := newEnvelope("orchestrator", "infra", "work_request", map[string]any{"task_id": uuid.NewString(), "work_type": "dig", "parameters": map[string]any{}})
		status, answer, err := c.do(t.Context(), http.MethodPost, "/api/agent/message", request)
		require.NoError(t, err)
		require.Equal(t, http.StatusAccepted, status, "%s", answer)
		job := dialEnvelope(t, c.URL, token).next()
		require.Equal(t, request.Payload["task_id"], job.Payload["task_id"])
		p.stop(t)
	})

	t.Run("a poll may wait longer than the request timeout", func(t *testing.T) {
		t.Parallel()
		data := t.TempDir()
		p := serve(t, data, env("COMET_HTTP_REQUEST_TIMEOUT=1s")) // this limits reading a request to 6 s
		c := newClient(t, p.url(t), adminToken(t, data))
		poller := newClient(t, c.URL, registerAgent(t, c, "poller"))
		answer := <-doAsync(t.Context(), poller, http.MethodGet, "/api/agent/inbox?wait=8", nil)
		require.NoError(t, answer.err)
		require.JSONEq(t, `{"messages":[]}`, string(answer.body))
		p.stop(t)
	})
}
