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
	doorAskers = 16
	doorSlice  = time.Second
)

// BenchmarkDoors measures the round trip, from the POST of a request over the worker at
// the end of a WebSocket to the answer with its result, where both speak PROTOCOL_V5
// against where both speak envelopes. A line opens a session, is kept with what answers
// it, and names the task; an envelope does none of that.
func BenchmarkDoors(b *testing.B) {
	b.Run(sqlite, func(b *testing.B) {
		m := measurement{what: "round trips in lines, SQLite", against: []comparison{{subject: "in envelopes", metric: "of_envelopes"}}}
		m.open = func(b *testing.B) []*subject {
			b.Helper()
			h := openMill(b, sqlite)
			h.employV5(b)
			h.employ(b)
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: doorAskers}}
			b.Cleanup(client.CloseIdleConnections)
			return []*subject{
				{name: "in lines", callers: doorAskers, slice: doorSlice, do: func(int, int) error { return h.line(client) }},
				{name: "in envelopes", callers: doorAskers, slice: doorSlice, do: func(int, int) error { return h.letter(client) }},
			}
		}
		printTable(os.Stdout, fmt.Sprintf("%d askers, one worker of concurrency 256 for each protocol.", doorAskers), m.run(b))
	})
}

// employ runs an agent of the package that does the work "envelope".
func (m *mill) employ(b *testing.B) {
	b.Helper()
	a, err := agent.New(m.url, m.hireFor(b, "worker-envelope", "custom:envelope"), &agent.Options{Concurrency: 256, Drain: -1})
	require.NoError(b, err)
	a.Handle("envelope", func(context.Context, *agent.Work) (agent.Result, error) { return agent.Result{Output: "done"}, nil })
	ctx, cancel := context.WithCancel(background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	b.Cleanup(func() {
		cancel()
		running.Wait()
	})
	m.awaitOnline(b, "worker-envelope")
}

// employV5 runs an agent that does the work "v5" and speaks PROTOCOL_V5 on a WebSocket.
func (m *mill) employV5(b *testing.B) {
	b.Helper()
	ctx, cancel := context.WithCancel(background())
	conn, _, err := websocket.Dial(ctx, m.url+"/api/agent/connect", &websocket.DialOptions{
		Subprotocols: []string{"v5"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + m.hireFor(b, "worker-v5", "custom:v5")}},
	})
	require.NoError(b, err)
	require.NoError(b, conn.Write(ctx, websocket.MessageText, []byte("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=v5;places=256")))
	var running sync.WaitGroup
	running.Go(func() {
		for n := 1; ; n = n%v5.MaxNumber + 1 {
			_, text, err := conn.Read(ctx)
			if err != nil {
				return
			}
			asked, err := v5.Parse(string(text))
			if err != nil || asked.Type != v5.Request {
				continue
			}
			result := v5.Reply(asked, asked.To, n, v5.Success, "done")
			result.State = v5.Done
			said, err := v5.Format(result)
			if err != nil || conn.Write(ctx, websocket.MessageText, []byte(said)) != nil {
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

func (m *mill) awaitOnline(b *testing.B, id string) {
	b.Helper()
	require.Eventually(b, func() bool {
		w, err := m.work.Worker(b.Context(), id)
		return err == nil && w.State == models.WorkerOnline
	}, time.Minute, time.Millisecond)
}

// line asks in a line and waits for the result.
func (m *mill) line(client *http.Client) error {
	said := "M1|User>O1|R|-|P1|N|-|0|-|-|call=v5;playbook=deploy_kuma.yml;version=\"1.4.0\";timeout=3600"
	answer, err := m.ask(client, "/api/v5/messages", "text/plain", []byte(said))
	if err == nil && !strings.Contains(answer, "|S|T1|P1|D|-|0|") {
		err = fmt.Errorf("the line is answered with %s", answer)
	}
	return err
}

// letter asks in an envelope and waits for the result.
func (m *mill) letter(client *http.Client) error {
	said := bytes.Replace(workRequest(uuid.New()), []byte(`"run_playbook"`), []byte(`"envelope"`), 1)
	answer, err := m.ask(client, "/api/agent/message", "application/json", said)
	if err == nil && !strings.Contains(answer, `"success"`) {
		err = fmt.Errorf("the envelope is answered with %s", answer)
	}
	return err
}

// ask posts a request and returns its answer, which is the end of the work.
func (m *mill) ask(client *http.Client, path, contentType string, body []byte) (string, error) {
	r, err := http.NewRequestWithContext(background(), http.MethodPost, m.url+path, bytes.NewReader(body))
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
