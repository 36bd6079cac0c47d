package bench

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/wire/genesis"
	v5 "comet/internal/wire/v5"
)

const (
	taskWorkers       = 4    // workers of each server
	workerConcurrency = 1000 // of each worker, the highest
	envelopeWork      = "run_playbook"
	v5Work            = "custom:v5"
)

// startEnvelopeWorkers connects workers that answer every work_request at once, and returns the
// counter of their answers.
func startEnvelopeWorkers(b *testing.B, s *cometServer) (answered *atomic.Int64) {
	b.Helper()
	answered = new(atomic.Int64)
	connectEnvelopeWorkers(b, s, registerEnvelopeWorkers(b, s), answered)
	return answered
}

// registerEnvelopeWorkers registers workers and returns their tokens by id.
func registerEnvelopeWorkers(b *testing.B, s *cometServer) map[string]string {
	b.Helper()
	tokens := map[string]string{}
	for range taskWorkers {
		id, token := s.registerAgent(b, "infra", envelopeWork)
		tokens[id] = token
	}
	return tokens
}

// connectEnvelopeWorkers connects registered workers and returns a function that disconnects them,
// which is also called at the end of the benchmark.
func connectEnvelopeWorkers(b *testing.B, s *cometServer, tokens map[string]string, answered *atomic.Int64) (stop func()) {
	b.Helper()
	var all []func()
	for id, token := range tokens {
		all = append(all, startEnvelopeWorker(b, s.addr, token, answered))
		s.awaitOnline(b, id)
	}
	return func() {
		for _, stop := range all {
			stop()
		}
	}
}

// startEnvelopeWorker connects a worker on a WebSocket. It acknowledges each work_request in a
// frame and sends the result in the next one.
func startEnvelopeWorker(b *testing.B, addr, token string, answered *atomic.Int64) (stop func()) {
	b.Helper()
	conn := dialAgent(b, addr, "envelope.v1", token)
	return serveAgent(b, conn, func(ctx context.Context, frame []byte) error {
		if !bytes.Contains(frame, []byte(`"work_request"`)) {
			return nil
		}
		ack := fmt.Appendf(nil, `{"ack":[%q]}`, member(frame, "message_id"))
		if err := conn.Write(ctx, websocket.MessageText, ack); err != nil {
			return err
		}
		answered.Add(1)
		return conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"protocol_version":"1.0","message_id":"%s","from_agent":"infra",`+
			`"to_agent":"orchestrator","timestamp":"2026-01-19T04:21:05Z","trace_id":"%s","request_id":"%s","type":"work_result","payload":`+
			`{"task_id":"%s","status":"success","exit_code":0,"output":"done","resources_used":{"duration_seconds":1,"gpu_vram_mb":0,`+
			`"cpu_time_ms":1}}}`, uuid.New(), member(frame, "trace_id"), member(frame, "request_id"), member(frame, "task_id")))
	})
}

// member returns the value of the first member of a name that is a string.
func member(message []byte, name string) string {
	_, rest, _ := bytes.Cut(message, []byte(`"`+name+`":"`))
	value, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(value)
}

// startV5Workers connects workers that use PROTOCOL_V5 on a WebSocket and answer every R at once.
func startV5Workers(b *testing.B, s *cometServer) {
	b.Helper()
	for range taskWorkers {
		id, token := s.registerAgent(b, "v5", v5Work)
		conn := dialAgent(b, s.addr, "v5", token)
		join := fmt.Sprintf("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=v5;concurrency=%d", workerConcurrency)
		require.NoError(b, conn.Write(detached(), websocket.MessageText, []byte(join)))
		number := 0
		serveAgent(b, conn, func(ctx context.Context, text []byte) error {
			request, err := v5.Parse(string(text))
			if err != nil || request.Type != v5.Request {
				return nil //nolint:nilerr // an ACK or an answer needs no reply
			}
			number = number%v5.MaxNumber + 1
			result := request.Reply(request.To, number, v5.Success, "done")
			result.State = v5.Done
			message, err := result.Format()
			if err != nil {
				return err
			}
			return conn.Write(ctx, websocket.MessageText, []byte(message))
		})
		s.awaitOnline(b, id)
	}
}

// dialAgent opens a WebSocket of an agent.
func dialAgent(b *testing.B, addr, subprotocol, token string) *websocket.Conn {
	b.Helper()
	ctx, cancel := context.WithTimeout(detached(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, fmt.Sprintf("ws://%s/api/agent/connect?concurrency=%d", addr, workerConcurrency), &websocket.DialOptions{
		Subprotocols: []string{subprotocol}, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	require.NoError(b, err)
	conn.SetReadLimit(8 << 20)
	b.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// serveAgent calls handle with every message until stop is called, at the latest at the end of the
// benchmark. It fails the benchmark if the connection ends before.
func serveAgent(b *testing.B, conn *websocket.Conn, handle func(ctx context.Context, message []byte) error) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(detached())
	var running sync.WaitGroup
	running.Go(func() {
		for {
			_, message, err := conn.Read(ctx)
			if err == nil {
				err = handle(ctx, message)
			}
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				b.Errorf("the connection of a worker ended: %v", err)
				return
			}
		}
	})
	stop = func() {
		cancel()
		running.Wait()
		_ = conn.CloseNow()
	}
	b.Cleanup(stop)
	return stop
}

// waitingPost returns the bytes of a POST that waits for the end of a task.
func waitingPost(path, contentType string, body []byte) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: comet\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nPrefer: wait=30\r\nContent-Length: %d\r\n\r\n%s",
		path, adminToken, contentType, len(body), body)
}

// envelopeRoundTrips is a subject whose callers send a work_request and wait for its result.
func envelopeRoundTrips(b *testing.B, name, addr string, callers int) *subject {
	b.Helper()
	return roundTrips(b, name, addr, callers, `"output":"done"`, func() []byte {
		return waitingPost("/api/agent/message", "application/json", workRequest(uuid.New()))
	})
}

// restRoundTrips is a subject whose callers submit a task over REST and wait for its end.
func restRoundTrips(b *testing.B, name, addr string, callers int) *subject {
	b.Helper()
	body := []byte(`{"capabilities":["` + envelopeWork + `"],"parameters":{"playbook":"deploy_kuma.yml","extra_vars":{"version":"1.4.0"}},"timeout_ms":3600000}`)
	return roundTrips(b, name, addr, callers, `"state":"done"`, func() []byte { return waitingPost("/api/v1/tasks", "application/json", body) })
}

// v5RoundTrips is a subject whose callers send an R of PROTOCOL_V5 over HTTP and wait for its S.
func v5RoundTrips(b *testing.B, name, addr string, callers int) *subject {
	b.Helper()
	line := []byte("M1|User>O1|R|-|P1|N|-|0|-|-|call=v5;playbook=deploy_kuma.yml;version=\"1.4.0\";timeout=3600")
	return roundTrips(b, name, addr, callers, "|S|T1|P1|D|-|0|", func() []byte { return waitingPost("/api/v5/messages", "text/plain", line) })
}

// roundTrips is a subject that repeats a request whose response must contain a text.
func roundTrips(b *testing.B, name, addr string, callers int, want string, request func() []byte) *subject {
	b.Helper()
	all := newCallers(b, addr, callers)
	return &subject{name: name, callers: callers, slice: taskSlice, timed: true, do: func(c, _ int) error {
		message := request()
		status, body, err := all[c].exchange(message)
		if err == nil && (status != http.StatusOK || !strings.Contains(string(body), want)) {
			err = fmt.Errorf("%d %s\nwithout %q to %s", status, body, want, message)
		}
		return err
	}}
}

// workRequest returns a work_request with new ids.
func workRequest(task uuid.UUID) []byte {
	return fmt.Appendf(nil, `{"protocol_version":"1.0","message_id":"%s","from_agent":"orchestrator","to_agent":"infra","timestamp":"2026-01-19T04:21:04Z",`+
		`"trace_id":"%s","request_id":"%s","type":"work_request","payload":{"task_id":"%s","work_type":"run_playbook","parameters":{"playbook":"deploy_kuma.yml",`+
		`"extra_vars":{"version":"1.4.0"}},"hints":{"max_duration_seconds":3600,"max_memory_mb":512}},"x_custom_fields":{}}`,
		uuid.New(), uuid.New(), uuid.New(), task)
}

// signedRequests returns a function that returns the same work as a signed REQUEST of a client.
func signedRequests(b *testing.B) func() []byte {
	b.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	require.NoError(b, err)
	return func() []byte {
		m := genesis.Message{ID: uuid.NewString(), From: "bench", To: genesis.Broadcast, Timestamp: time.Now().UnixNano(), Body: genesis.Request{
			Intent: envelopeWork, Confidence: 1, Entities: []genesis.Entity{}, Payload: jsontext.Value(`{"playbook":"deploy_kuma.yml","extra_vars":{"version":"1.4.0"}}`),
			Context: jsontext.Value("{}"), Priority: genesis.Normal,
		}}
		require.NoError(b, m.Sign(key, genesis.ProfileV1))
		text, err := m.Format()
		require.NoError(b, err)
		return post("/api/genesis/messages", adminToken, text)
	}
}
