package bench

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/agent"
	v5 "comet/internal/wire/v5"
	"comet/models"
)

const (
	protocolCallers = 16
	protocolSlice   = time.Second
)

// BenchmarkProtocols compares the round trip from the POST of a request through a worker on a
// WebSocket to the response with the result in PROTOCOL_V5 and in envelopes. A V5 message opens
// a session and is logged with its response; an envelope is not.
func BenchmarkProtocols(b *testing.B) {
	b.Run(sqlite, func(b *testing.B) {
		m := measurement{what: "round trips in V5, SQLite", against: []comparison{{subject: "in envelopes", metric: "of_envelopes"}}}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			h := openTaskServer(b, sqlite)
			h.startV5Worker(b)
			h.startWorker(b)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: protocolCallers}}
			b.Cleanup(client.CloseIdleConnections)
			return []*subject{
				{name: "in V5", callers: protocolCallers, slice: protocolSlice, do: func(int, int) error { return h.sendV5(client) }},
				{name: "in envelopes", callers: protocolCallers, slice: protocolSlice, do: func(int, int) error { return h.sendEnvelope(client) }},
			}
		}
		printTable(os.Stdout, fmt.Sprintf("%d callers, one worker of concurrency 256 for each protocol.", protocolCallers), m.run(b))
	})
}

// startWorker runs an agent of the Go SDK for the work type "envelope".
func (m *taskServer) startWorker(b *testing.B) {
	b.Helper()
	a, err := agent.New(m.url, m.registerWorkerFor(b, "worker-envelope", "custom:envelope"), &agent.Options{Concurrency: 256, Drain: -1})
	require.NoError(b, err)
	a.Handle("envelope", func(context.Context, *agent.Work) (agent.Result, error) { return agent.Result{Output: "done"}, nil })
	ctx, cancel := context.WithCancel(detached())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		running.Wait()
	})
	m.awaitOnline(b, "worker-envelope")
}

// startV5Worker runs an agent for the work type "v5" that uses PROTOCOL_V5 on a WebSocket.
func (m *taskServer) startV5Worker(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithCancel(detached())
	conn, _, err := websocket.Dial(ctx, m.url+"/api/agent/connect", &websocket.DialOptions{
		Subprotocols: []string{"v5"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + m.registerWorkerFor(b, "worker-v5", "custom:v5")}},
	})
	require.NoError(b, err)
	require.NoError(b, conn.Write(ctx, websocket.MessageText, []byte("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=v5;concurrency=256")))
	var running sync.WaitGroup
	running.Go(func() {
		for n := 1; ; n = n%v5.MaxNumber + 1 {
			_, text, err := conn.Read(ctx)
			if err != nil {
				return
			}
			request, err := v5.Parse(string(text))
			if err != nil || request.Type != v5.Request {
				continue
			}
			result := request.Reply(request.To, n, v5.Success, "done")
			result.State = v5.Done
			message, err := result.Format()
			if err != nil || conn.Write(ctx, websocket.MessageText, []byte(message)) != nil {
				return
			}
		}
	})
	b.Cleanup(func() {
		cancel()
		running.Wait()
	})
	m.awaitOnline(b, "worker-v5")
}

func (m *taskServer) awaitOnline(b *testing.B, id string) {
	b.Helper()
	require.Eventually(b, func() bool {
		w, err := m.work.Worker(b.Context(), id)
		return err == nil && w.State == models.WorkerOnline
	}, time.Minute, time.Millisecond)
}

// sendV5 sends a request in PROTOCOL_V5 and waits for the result.
func (m *taskServer) sendV5(client *http.Client) error {
	message := "M1|User>O1|R|-|P1|N|-|0|-|-|call=v5;playbook=deploy_kuma.yml;version=\"1.4.0\";timeout=3600"
	response, err := m.send(client, "/api/v5/messages", "text/plain", []byte(message))
	if err == nil && !strings.Contains(response, "|S|T1|P1|D|-|0|") {
		err = fmt.Errorf("the response to the V5 message is %s", response)
	}
	return err
}

// sendEnvelope sends a request in an envelope and waits for the result.
func (m *taskServer) sendEnvelope(client *http.Client) error {
	message := bytes.Replace(workRequest(uuid.New()), []byte(`"run_playbook"`), []byte(`"envelope"`), 1)
	response, err := m.send(client, "/api/agent/message", "application/json", message)
	if err == nil && !strings.Contains(response, `"success"`) {
		err = fmt.Errorf("the response to the envelope is %s", response)
	}
	return err
}

// send posts a request and returns the response, which has the result.
func (m *taskServer) send(client *http.Client, path, contentType string, body []byte) (string, error) {
	r, err := http.NewRequestWithContext(detached(), http.MethodPost, m.url+path, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	r.Header.Set("Authorization", "Bearer "+adminToken)
	r.Header.Set("Content-Type", contentType)
	r.Header.Set("Prefer", "wait=30")
	resp, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	return string(text), err
}
