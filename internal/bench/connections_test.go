package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"comet/internal/testkit"
	v5 "comet/internal/wire/v5"
)

const (
	statusBatch = 1000 // status messages of a slice
	// requestBatch is the number of R messages of a slice. A TCP connection may send 500 messages at
	// once and 500 a second, so a slice must be shorter.
	requestBatch = 200
	// resultsPerHeartbeat is how many results a requester reads between its heartbeats, which
	// acknowledge them. At most 100 are delivered without an acknowledgement.
	resultsPerHeartbeat = 25
	// aloneBatch is the number of messages of a slice that wait for each answer.
	aloneBatch = 50
)

// The subjects of BenchmarkConnection.
const (
	pipelined    = "without waiting"
	oneAtATime   = "one at a time"
	earlierPiped = "before, without waiting"
)

// BenchmarkConnection measures what one connection carries: status messages in envelopes on a
// WebSocket, and R messages with their results in PROTOCOL_V5 over TCP. Messages are sent without
// waiting for each answer, against one at a time.
func BenchmarkConnection(b *testing.B) {
	var results []result
	eachDatabase(b, func(b *testing.B, database string) {
		for _, m := range []measurement{
			connectionMeasurement(database, "Status", "status messages on a WebSocket", newStatusSender),
			connectionMeasurement(database, "Requests", "R messages with results on TCP", newLineRequester),
		} {
			b.Run(m.name, func(b *testing.B) { results = append(results, m.run(b)...) })
		}
	})
	printTable(os.Stdout, "One connection.", results)
}

// messageSender sends a number of messages on one connection and returns when all are answered.
type messageSender func(b *testing.B, messages int, wait bool)

func connectionMeasurement(database, name, what string, connect func(*testing.B, *cometServer) messageSender) measurement {
	m := measurement{name: name, what: what + ", " + database}
	m.against = []comparison{{subject: oneAtATime, metric: "of_one_at_a_time"}, {subject: earlierPiped, metric: "of_before"}}
	if database == sqlite {
		m.against[1].aim = 5
	}
	batch := requestBatch
	if name == "Status" {
		batch = statusBatch
	}
	m.open = func(b *testing.B) []*subject {
		b.Helper()
		send := connect(b, startComet(b, newStorage(b, database), nil))
		all := []*subject{messageSubject(pipelined, batch, false, send), messageSubject(oneAtATime, aloneBatch, true, send)}
		if old, ok := before(b, database); ok {
			s := messageSubject(earlierPiped, batch, false, connect(b, old))
			s.cpu = old.cpu
			all = append(all, s)
		}
		return all
	}
	return m
}

func messageSubject(name string, batch int, wait bool, send messageSender) *subject {
	return &subject{name: name, callers: 1, batch: func(b *testing.B) int {
		b.Helper()
		send(b, batch, wait)
		return batch
	}}
}

// newStatusSender connects a worker that reports the progress of one task again and again.
func newStatusSender(b *testing.B, s *cometServer) messageSender {
	b.Helper()
	id, token := s.registerAgent(b, "reporter", "custom:report")
	conn := dialAgent(b, s.addr, "envelope.v1", token)
	orders, acks := make(chan string, 1), make(chan int, 2*statusBatch)
	serveAgent(b, conn, func(ctx context.Context, frame []byte) error {
		switch {
		case bytes.HasPrefix(frame, []byte(`{"ack":`)):
			acks <- bytes.Count(frame, []byte(`"`))/2 - 1 // the ids
		case bytes.Contains(frame, []byte(`"work_request"`)):
			if err := conn.Write(ctx, websocket.MessageText, fmt.Appendf(nil, `{"ack":[%q]}`, member(frame, "message_id"))); err != nil {
				return err
			}
			orders <- string(frame)
		case bytes.Contains(frame, []byte(`"error_code"`)):
			return fmt.Errorf("a status message was rejected: %s", frame)
		}
		return nil
	})
	s.awaitOnline(b, id)
	var task struct{ ID string }
	s.call(b, post("/api/v1/tasks", adminToken, fmt.Appendf(nil, `{"agent_id":%q,"timeout_ms":3600000}`, id)), 202, &task)
	order := []byte(testkit.Receive(b, orders))
	sent := 0
	return func(b *testing.B, messages int, wait bool) {
		b.Helper()
		answered := 0
		for n := range messages {
			sent++
			text := fmt.Appendf(nil, `{"protocol_version":"1.0","message_id":"%s","from_agent":"reporter","to_agent":"orchestrator","timestamp":"2026-01-19T04:21:05Z",`+
				`"trace_id":"%s","request_id":"%s","type":"work_status","payload":{"task_id":"%s","status":"running","progress_percent":%d}}`,
				uuid.New(), member(order, "trace_id"), member(order, "request_id"), task.ID, sent%100)
			require.NoError(b, conn.Write(detached(), websocket.MessageText, text))
			for wait && answered <= n {
				answered += testkit.Receive(b, acks)
			}
		}
		for answered < messages {
			answered += testkit.Receive(b, acks)
		}
		require.Equal(b, messages, answered, "acknowledgements")
	}
}

// newLineRequester connects an agent over TCP that requests tasks in PROTOCOL_V5, which other workers
// answer at once.
func newLineRequester(b *testing.B, s *cometServer) messageSender {
	b.Helper()
	startV5Workers(b, s)
	conn, err := (&net.Dialer{}).DialContext(detached(), "tcp", s.v5Addr)
	require.NoError(b, err)
	b.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewReader(conn)
	next := func(b *testing.B) string {
		b.Helper()
		require.NoError(b, conn.SetDeadline(time.Now().Add(time.Minute)))
		line, err := in.ReadString('\n')
		require.NoError(b, err)
		return line
	}
	_, err = conn.Write([]byte("M1|W1>O1|J|T0|-|-|-|0|S0|-|name=bench-requester\n"))
	require.NoError(b, err)
	joined := next(b)
	id := regexp.MustCompile(`id=(W[0-9.]+);`).FindStringSubmatch(joined)
	require.NotNil(b, id, joined)
	number := 1
	line := func(rest string) string {
		number = number%v5.MaxNumber + 1
		return fmt.Sprintf("M%d|%s>O1|%s\n", number, id[1], rest)
	}
	heartbeat := func(b *testing.B) {
		b.Helper()
		_, err := conn.Write([]byte(line("H|T0|-|-|-|0|S0|-|load=0%")))
		require.NoError(b, err)
	}
	return func(b *testing.B, messages int, wait bool) {
		b.Helper()
		at, lines := 1, make([]string, messages)
		for n := range lines {
			lines[n] = line("R|-|P1|N|-|0|-|-|call=v5;playbook=deploy_kuma.yml;version=\"1.4.0\";timeout=3600")
		}
		if !wait {
			at, lines = messages, []string{strings.Join(lines, "")}
		}
		for _, text := range lines {
			_, err := conn.Write([]byte(text))
			require.NoError(b, err)
			for got := 0; got < at; {
				answer := next(b)
				require.NotContains(b, answer, "|F|")
				if !strings.Contains(answer, "|S|") {
					continue
				}
				if got++; got%resultsPerHeartbeat == 0 || got == at {
					heartbeat(b) // acknowledges the results
				}
			}
		}
	}
}
