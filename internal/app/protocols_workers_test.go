package app_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	comet "comet/agent"
	v5 "comet/internal/wire/v5"
	"comet/internal/wire/v5/codes"
)

// protocolWorker is a worker of one kind. It reports tasks that it blocks on, and tasks that were
// cancelled.
type protocolWorker struct {
	id, kind string
	// capability is that of the worker.
	capability       string
	started, stopped chan string
	proceed          chan struct{} // lets a task continue that has sent a part of its result
	testEnded        chan struct{} // closed when the test ends

	mu         sync.Mutex
	traces     []string // of the requests, if the protocol shows them
	requests   []v5.Message
	questioned v5.Message   // the request about which it asked a question
	runs       atomic.Int64 // calls of handle, with the package agent
}

// speaksV5 reports whether the worker speaks PROTOCOL_V5.
func (w *protocolWorker) speaksV5() bool { return slices.Contains(v5WorkerKinds(), w.kind) }

// receivedRequests returns the requests that a V5 worker has received.
func (w *protocolWorker) receivedRequests() []v5.Message {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.requests)
}

// newWorker starts a worker of a kind, with a capability of its own.
func (f *protocolFixture) newWorker(t *testing.T, kind string) *protocolWorker {
	t.Helper()
	id, token := f.registerAgent(t, strings.ReplaceAll(kind, " ", "-"), "agents:write")
	w := &protocolWorker{id: id, kind: kind, capability: id, started: make(chan string, 10), stopped: make(chan string, 10), proceed: make(chan struct{}, 1), testEnded: make(chan struct{})}
	switch kind {
	case "envelope":
		f.startAgent(t, w, token)
	case "genesis", "genesis polling":
		f.startGenesisWorker(t, w, token)
	case "mcp":
		f.startMCPWorker(t, w)
	case "a2a":
		f.startA2AWorker(t, w)
	default:
		f.startV5Worker(t, w, token)
	}
	eventually(t, func() bool { return f.online(t, w.id) }, "the worker is online")
	return w
}

// startAgent starts a worker that uses the package agent.
func (f *protocolFixture) startAgent(t *testing.T, w *protocolWorker, token string) {
	t.Helper()
	a, err := comet.New(f.URL, token, &comet.Options{Concurrency: 4, Drain: -1, KeepAlive: -1, Flush: time.Millisecond})
	require.NoError(t, err)
	a.Handle(w.id, w.handle)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	t.Cleanup(func() {
		close(w.testEnded)
		cancel()
		running.Wait()
	})
}

// handle is the task function of the package agent.
func (w *protocolWorker) handle(ctx context.Context, work *comet.Work) (comet.Result, error) {
	var p struct {
		Do string
		N  int
	}
	if err := work.Decode(&p); err != nil {
		return comet.Result{}, err
	}
	run := w.runs.Add(1)
	w.addTrace(work.TraceID().String())
	switch p.Do {
	case "parts": // what it writes is the log of the task
		if _, err := io.WriteString(work, "one "); err != nil {
			return comet.Result{}, err
		}
		w.waitAfterPart()
		return comet.Result{Output: "one two"}, nil
	case "ok":
		work.Tokens(30)
	case "retry":
		if run == 1 {
			return comet.Result{}, comet.ResourceLimit("memory_mb", 1, 2)
		}
		work.Tokens(30)
	case "too much":
		return comet.Result{}, comet.ResourceLimit("token_budget", 20, 150)
	case "progress":
		if err := work.Progress(50, "half of it"); err != nil {
			return comet.Result{}, err
		}
	case "fail":
		return comet.Result{ExitCode: 3, Output: "no luck"}, nil
	case "long":
		return comet.Result{Output: strings.Repeat(unsafeText, 300)}, nil
	case "large":
		return comet.Result{Output: largeText()}, nil
	case "hang":
		w.started <- w.id
		<-ctx.Done()
		w.stopped <- w.id
		return comet.Result{}, context.Cause(ctx)
	case "silent": // it ignores cancellation
		<-w.testEnded
	}
	return comet.Result{Output: fmt.Sprint("n is ", p.N)}, nil
}

// v5Conn is a connection that carries PROTOCOL_V5, over TCP or a WebSocket.
type v5Conn struct {
	send  func(line string) error
	next  func() (string, error)
	close func()
}

func (f *protocolFixture) dialV5(t *testing.T, kind, token string) v5Conn {
	t.Helper()
	if kind == "tcp" {
		conn, err := dialV5TCP(t.Context(), f.v5Addr)
		require.NoError(t, err)
		return conn
	}
	conn, err := dialV5WebSocket(context.Background(), f.URL, token)
	require.NoError(t, err)
	return conn
}

func dialV5WebSocket(ctx context.Context, url, token string) (v5Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	conn, resp, err := websocket.Dial(ctx, url+"/api/agent/connect", &websocket.DialOptions{
		Subprotocols: []string{"v5"}, HTTPHeader: http.Header{"Authorization": {"Bearer " + token}},
	})
	if err != nil {
		cancel()
		return v5Conn{}, err
	}
	if resp.Body != nil {
		_ = resp.Body.Close()
	}
	if conn.Subprotocol() != "v5" {
		cancel()
		return v5Conn{}, fmt.Errorf("the server chose the subprotocol %q", conn.Subprotocol())
	}
	return v5Conn{
		func(line string) error { return conn.Write(ctx, websocket.MessageText, []byte(line)) },
		func() (string, error) { _, line, err := conn.Read(ctx); return string(line), err },
		cancel,
	}, nil
}

func dialV5TCP(ctx context.Context, address string) (v5Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return v5Conn{}, err
	}
	in := bufio.NewReader(conn)
	return v5Conn{
		func(line string) error { _, err := io.WriteString(conn, line+"\n"); return err },
		func() (string, error) { line, err := in.ReadString('\n'); return strings.TrimSuffix(line, "\n"), err },
		func() { _ = conn.Close() },
	}, nil
}

// startV5Worker starts a minimal V5 worker: it sends J and replies to each message.
func (f *protocolFixture) startV5Worker(t *testing.T, w *protocolWorker, token string) {
	t.Helper()
	conn := f.dialV5(t, w.kind, token)
	join := "M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=custom:" + w.id + ";concurrency=4"
	if w.kind == "tcp" {
		join += ";token=" + token
	}
	require.NoError(t, conn.send(join))
	first, err := conn.next()
	require.NoError(t, err)
	require.Contains(t, first, "|A|T0|")
	require.NotContains(t, first, token)
	joined, err := v5.Parse(first)
	require.NoError(t, err)
	var running sync.WaitGroup
	running.Go(func() {
		for n := 2; ; n++ {
			text, err := conn.next()
			if err != nil {
				return
			}
			m, err := v5.Parse(text)
			if err != nil {
				w.stopped <- "a malformed line: " + text
				return
			}
			if m.Type == v5.Failure {
				w.stopped <- "a refusal: " + text
				return
			}
			for _, reply := range w.respond(m) {
				if strings.HasPrefix(string(reply.Data), "part=2;text=two") {
					w.waitAfterPart()
				}
				reply.From, reply.To, reply.Number = joined.To, m.From, n
				text, err := reply.Format()
				if err == nil {
					err = conn.send(text)
				}
				if err != nil {
					w.stopped <- err.Error()
					return
				}
			}
		}
	})
	t.Cleanup(func() {
		close(w.testEnded)
		conn.close()
		running.Wait()
	})
}

// addTrace records the trace of a request.
func (w *protocolWorker) addTrace(trace string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.traces = append(w.traces, trace)
}

// waitAfterPart reports that a part of a result was sent, and waits until the task may continue.
func (w *protocolWorker) waitAfterPart() {
	w.started <- w.id
	select {
	case <-w.proceed:
	case <-w.testEnded:
	}
}

// respond returns the worker's replies to a message.
func (w *protocolWorker) respond(m v5.Message) []v5.Message {
	switch {
	case m.Type == v5.Update && m.State == v5.Cancelled:
		w.stopped <- w.id
		return nil
	case m.Type == v5.Clarify:
		w.mu.Lock()
		defer w.mu.Unlock()
		answer, _ := m.Data.Get("answer")
		return []v5.Message{v5Reply(w.questioned, v5.Success, v5.Done, "in "+answer)}
	case m.Type != v5.Request:
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests = append(w.requests, m)
	do, _ := m.Data.Get("do")
	if do == "retry" && len(w.requests) == 1 {
		return []v5.Message{v5Failure(m, codes.E32, "desc=not now")}
	}
	switch do {
	case "ok", "retry":
		return []v5.Message{v5Done(m)}
	case "progress":
		return []v5.Message{v5Reply(m, v5.Update, v5.Running, "progress=50%;step=half of it"), v5Done(m)}
	case "ask":
		w.questioned = m
		return []v5.Message{v5Reply(m, v5.Clarify, v5.Running, "question=which format?;options=json,txt")}
	case "too much":
		return []v5.Message{v5Failure(m, codes.E17, "desc=budget insufficient;needed=150;have=20")}
	case "parts":
		return []v5.Message{
			v5Reply(m, v5.Update, v5.Running, `part=1;text="one "`), v5Reply(m, v5.Update, v5.Running, "part=2;text=two"),
			v5Reply(m, v5.Success, v5.Done, fmt.Sprintf("src=#REF:%s:raw;parts=2", m.Task)),
		}
	case "long":
		return v5Pieces(m, strings.Repeat(unsafeText, 300), 108, func(text string) string {
			return "enc=base64;text=" + base64.StdEncoding.EncodeToString([]byte(text))
		})
	case "large":
		return v5Pieces(m, largeText(), 180, func(text string) string { return `text="` + text + `"` })
	case "silent":
		return nil
	case "hang":
		w.started <- w.id
		return []v5.Message{v5Reply(m, v5.Ack, v5.Running, "-")}
	}
	return []v5.Message{v5Failure(m, codes.E99, "desc=no luck")}
}

func v5Reply(m v5.Message, t v5.Type, s v5.State, data string) v5.Message {
	out := m.Reply(m.To, 1, t, v5.Data(data))
	out.State = s
	return out
}

func v5Failure(m v5.Message, code codes.Code, data string) v5.Message {
	out := v5Reply(m, v5.Failure, v5.Failed, data)
	out.Err = code
	return out
}

// v5Done returns a result that has used 30 tokens of the budget.
func v5Done(m v5.Message) v5.Message {
	n, _ := m.Data.Get("n")
	out := v5Reply(m, v5.Success, v5.Done, "n is "+n)
	if left, ok := m.Budget.Tokens(); ok {
		out.Budget = v5.NewBudget(int64(left) - 30)
	}
	return out
}

// v5Pieces returns a result that is too long for DATA, in pieces of size characters.
func v5Pieces(m v5.Message, text string, size int, format func(string) string) (all []v5.Message) {
	for piece := range slices.Chunk([]rune(text), size) {
		all = append(all, v5Reply(m, v5.Update, v5.Running, fmt.Sprintf("part=%d;%s", len(all)+1, format(string(piece)))))
	}
	return append(all, v5Reply(m, v5.Success, v5.Done, fmt.Sprintf("src=#REF:%s:raw;parts=%d", m.Task, len(all))))
}
