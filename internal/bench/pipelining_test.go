package bench

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	v5 "comet/internal/protocol/v5"
	"comet/internal/transport"
	"comet/models"
)

const (
	pipelineWindow = 256 // messages without a reply; the server processes 64 of them at a time
	pipelineBatch  = 500
	serialBatch    = 60
)

// BenchmarkPipelining measures one connection that sends without waiting for the replies against
// one that waits for each reply: requests in PROTOCOL_V5 over TCP, which no worker executes, and
// work_status messages of one task over a WebSocket.
func BenchmarkPipelining(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		for what, open := range map[string]func(*testing.B, *taskServer) messageStream{
			"requests in V5 over TCP": openRequestStream, "work_status over a WebSocket": openStatusStream,
		} {
			m := measurement{name: what, what: what + ", " + database, against: []comparison{{subject: "window of 1", metric: "of_serial", aim: 5}}}
			m.open = func(b *testing.B) []*subject {
				b.Helper()
				stream := open(b, openTaskServer(b, database))
				return []*subject{
					{name: "window of 256", callers: pipelineWindow, prepare: stream.prepare, batch: func(b *testing.B) int { return stream.exchange(b, pipelineBatch, pipelineWindow) }},
					{name: "window of 1", callers: 1, batch: func(b *testing.B) int { return stream.exchange(b, serialBatch, 1) }},
				}
			}
			b.Run(what, func(b *testing.B) { results = append(results, m.run(b)...) })
		}
	})
	printTable(os.Stdout, "One connection.", results)
}

// messageStream is a connection of an agent. send sends a message, and receive the reply to one.
// prepare keeps its workers online.
type messageStream struct {
	prepare       func(b *testing.B)
	send, receive func() error
}

// exchange sends n messages, up to window of them without a reply.
func (s messageStream) exchange(b *testing.B, n, window int) int {
	b.Helper()
	credit, sent := make(chan struct{}, window), make(chan error, 1)
	go func() {
		for range n {
			credit <- struct{}{}
			if err := s.send(); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for range n {
		require.NoError(b, s.receive())
		<-credit
	}
	require.NoError(b, <-sent)
	return n
}

// openRequestStream connects an agent that submits requests over TCP. Their workers never answer.
func openRequestStream(b *testing.B, m *taskServer) messageStream {
	b.Helper()
	for n := range holders {
		id := fmt.Sprintf("holder-%03d", n)
		m.registerWorkerFor(b, id, "custom:hold")
		_, err := m.work.Join(b.Context(), id, orchestrator.JoinRequest{Protocol: v5.Name, Transport: "push", Concurrency: orchestrator.MaxConcurrency})
		require.NoError(b, err)
	}
	listener := transport.NewTCPListener(m.connections, "127.0.0.1:0", &transport.TCPOptions{MaxMessageRate: 1 << 30})
	require.NoError(b, listener.Start(b.Context()))
	b.Cleanup(func() { require.NoError(b, listener.Stop(detached())) })
	conn, err := new(net.Dialer).DialContext(b.Context(), "tcp", listener.Addr().String())
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	receive := func(want string) (address string, err error) {
		line, err := in.ReadString('\n')
		if err == nil && !strings.Contains(line, want) {
			err = fmt.Errorf("the reply is %s", line)
		}
		_, address, _ = strings.Cut(strings.SplitN(line, "|", 3)[1], ">")
		return address, err
	}
	_, err = fmt.Fprintf(conn, "M1|W1>O1|J|T0|-|-|-|0|S0|-|token=%s\n", m.requesterToken(b))
	require.NoError(b, err)
	own, err := receive("registered")
	require.NoError(b, err)
	message := []byte("M2|" + own + ">O1|R|-|P1|N|-|0|-|-|call=hold;playbook=deploy_kuma.yml;timeout=3600\n")
	return messageStream{
		prepare: func(b *testing.B) {
			for n := range holders {
				_, err := m.work.Heartbeat(b.Context(), fmt.Sprintf("holder-%03d", n), orchestrator.Heartbeat{State: models.WorkerOnline, Present: true})
				require.NoError(b, err)
			}
		},
		send: func() error {
			_, err := conn.Write(message)
			return err
		},
		receive: func() error {
			_, err := receive("accepted")
			return err
		},
	}
}

// openStatusStream connects a worker over a WebSocket and assigns a task to it.
func openStatusStream(b *testing.B, m *taskServer) messageStream {
	b.Helper()
	conn, _, err := websocket.Dial(b.Context(), m.url+"/api/agent/connect", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + m.registerWorkerFor(b, "reporter", "custom:report")}},
	})
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.CloseNow() })
	receive := func(want string) error {
		for { // among pings and other frames
			_, text, err := conn.Read(detached())
			if err != nil || strings.Contains(string(text), want) {
				return err
			}
			if strings.Contains(string(text), `"error"`) {
				return fmt.Errorf("the reply is %s", text)
			}
		}
	}
	require.NoError(b, receive(`"hello"`))
	submitted, err := m.work.Submit(b.Context(), models.System(), orchestrator.Submission{AgentID: "reporter", Priority: orchestrator.DefaultPriority}, nil)
	require.NoError(b, err)
	return messageStream{
		send: func() error {
			return conn.Write(detached(), websocket.MessageText, workStatus(submitted.Task.ID))
		},
		receive: func() error { return receive(`"ack"`) },
	}
}

func workStatus(taskID string) []byte {
	return fmt.Appendf(nil, `{"protocol_version":"1.0","message_id":"%s","from_agent":"infra","to_agent":"orchestrator","timestamp":"2026-01-19T04:21:04Z",`+
		`"trace_id":"%s","request_id":"%s","type":"work_status","payload":{"task_id":"%s","status":"running","progress_percent":50,`+
		`"step":{"number":1,"name":"deploy"}},"x_custom_fields":{}}`, uuid.New(), uuid.New(), uuid.New(), taskID)
}

// requesterToken returns the token of an agent that submits requests.
func (m *taskServer) requesterToken(b *testing.B) string {
	b.Helper()
	m.registerWorkerFor(b, "requester", "custom:none")
	return m.issueToken(b, "requester", models.ScopeMessagesSend)
}
