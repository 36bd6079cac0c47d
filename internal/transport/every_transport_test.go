package transport_test

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/auth"
	"comet/internal/bus"
	"comet/internal/transport"
	"comet/models"
	"comet/store/storetest"
)

// linesFixture serves linesProtocol beside the default protocol.
type linesFixture struct {
	*fixture
	bus    *bus.Bus
	framed bool
	tcp    string
	agents string // the token of the agent ada
}

// linesWorker is the agent ada, over any transport.
type linesWorker struct {
	// next returns the next message for the agent.
	next func() string
	// send sends a message and returns the reply.
	send func(line string) string
	// ack acknowledges a message, nil if the transport acknowledges received messages by itself.
	ack func(messageID string)
	// close ends the connection.
	close func()
}

// TestEveryTransportCarriesEveryProtocol: a protocol that the composition root adds to its list can
// submit, receive, acknowledge, complete and be refused over all transports.
func TestEveryTransportCarriesEveryProtocol(t *testing.T) {
	t.Parallel()
	connect := map[string]func(*testing.T, *linesFixture) linesWorker{
		transport.WebSocket: webSocketLines, transport.TCP: tcpLines, transport.SSE: sseLines,
		transport.Poll: pollLines, transport.Push: pushLines, transport.NATS: natsLines,
	}
	for via, open := range connect {
		for mode, framed := range map[string]bool{"framed": true, "unframed": false} {
			t.Run(via+"/"+mode, func(t *testing.T) {
				t.Parallel()
				storetest.Run(t, func(t *testing.T, db *storetest.DB) { exchangeLines(t, openLinesFixture(t, db, framed), via, open) })
			})
		}
	}
}

// TestSignedProtocol: a protocol that signs with Ed25519 keys is verified by its transport and
// rejects invalid signatures and replays.
func TestSignedProtocol(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		keys := auth.NewKeys(db.Store, nil)
		f := openFixture(t, startWork(t, db), shortIntervals(), func(c *transport.Core) {
			c.Keys, c.Protocols = keys, append(c.Protocols, &linesProtocol{work: c.Work, keys: keys})
		})
		token := f.agent(t, "ada")
		public, private, err := ed25519.GenerateKey(nil)
		require.NoError(t, err)
		_, err = keys.Pin(t.Context(), models.System(), "ada", auth.PublicKeyDraft{PublicKey: public, Required: true}, nil)
		require.NoError(t, err)
		signed := func(line string) string {
			return "sig=" + base64.StdEncoding.EncodeToString(ed25519.Sign(private, []byte(line))) + " " + line
		}
		ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
		defer cancel()
		dial := func(first string) *websocket.Conn {
			conn, _, err := websocket.Dial(ctx, f.url+"/api/agent/connect", &websocket.DialOptions{
				HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}, Subprotocols: []string{"lines.v1"},
			})
			require.NoError(t, err)
			t.Cleanup(func() { _ = conn.CloseNow() })
			require.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(first)))
			return conn
		}
		exchange := func(conn *websocket.Conn, line string) string {
			require.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(line)))
			_, reply, err := conn.Read(ctx)
			require.NoError(t, err)
			return string(reply)
		}
		for _, first := range []string{"join", "sig=AAAA join", strings.Replace(signed("join"), "join", "joim", 1)} {
			conn := dial(first)
			_, reply, err := conn.Read(ctx)
			require.NoError(t, err)
			require.Contains(t, string(reply), "error unauthenticated ")
			_, _, err = conn.Read(ctx)
			require.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))
		}
		join := signed("join")
		conn := dial(join)
		_, reply, err := conn.Read(ctx)
		require.NoError(t, err)
		require.Equal(t, "joined", string(reply))
		require.Contains(t, exchange(conn, join), "error conflict ", "a replay")
		require.Contains(t, exchange(conn, "accept x"), "error unauthenticated ")
		require.Contains(t, exchange(conn, signed("accept x")), "error not-found ")
	})
}

func openLinesFixture(t *testing.T, db *storetest.DB, framed bool) *linesFixture {
	t.Helper()
	f := &linesFixture{framed: framed, bus: newBus(t)}
	opts := shortIntervals()
	opts.Heartbeat, opts.Redeliver, opts.Republish = time.Hour, time.Nanosecond, time.Nanosecond
	f.fixture = openFixture(t, startWork(t, db), opts, func(c *transport.Core) {
		c.Bus, c.Protocols = f.bus, append(c.Protocols, &linesProtocol{work: c.Work, framed: framed})
	})
	listener := transport.NewTCPListener(f.transports, "127.0.0.1:0", nil)
	require.NoError(t, listener.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, listener.Stop(context.Background())) })
	f.tcp, f.agents = listener.Addr().String(), f.agent(t, "ada")
	return f
}

// exchangeLines lets a client and the agent ada exchange messages.
func exchangeLines(t *testing.T, f *linesFixture, via string, open func(*testing.T, *linesFixture) linesWorker) {
	t.Helper()
	worker := open(t, f)
	w := f.WaitForWorker(t, "ada", online)
	require.Equal(t, [2]string{via, "lines"}, [2]string{w.Transport, w.Protocol})
	client := f.token(t, "", models.ScopeMessagesSend).Secret
	verb, task, _ := strings.Cut(f.post(t, client, "submit custom:ada count the words"), " ")
	require.Equal(t, "task", verb)

	first := worker.next()
	require.Equal(t, []string{"assign", task, "count the words"}, withoutMessageID(first))
	worker.close()
	if via != transport.Push { // which connects again by itself
		worker = open(t, f)
	}
	require.Equal(t, first, worker.next(), "it is delivered again after a reconnect")
	require.Contains(t, worker.send("done nonsense 7"), "error not-found ")
	require.Contains(t, worker.send("dance"), "error invalid-request ")
	if worker.ack != nil {
		worker.ack(strings.Fields(first)[1])
		f.WaitForInbox(t, "ada", 0)
	}
	require.Equal(t, "accepted "+task, worker.send("accept "+task))
	f.WaitForInbox(t, "ada", 0)
	require.Equal(t, "completed "+task, worker.send("done "+task+" 3"))
	ended, err := f.Wait(t.Context(), "", task, time.Minute)
	require.NoError(t, err)
	require.Equal(t, models.TaskDone, ended.State)

	reply := f.doAsync(t.Context(), "POST", messagePath, client, "submit custom:ada again", "Content-Type", "text/x-lines", "Prefer", "wait=60")
	var second []string
	for len(second) == 0 || second[1] == task { // the first task may have been delivered more than twice
		second = withoutMessageID(worker.next())
	}
	require.Equal(t, "failed "+second[1], worker.send("fail "+second[1]+" no words"))
	got := <-reply
	require.Equal(t, http.StatusOK, got.StatusCode)
	require.Equal(t, "ended "+second[1], strings.TrimSpace(got.body))
	worker.close()
}

// withoutMessageID returns the verb, the task and the text of an assignment.
func withoutMessageID(line string) []string {
	words := strings.SplitN(line, " ", 4)
	return append(words[:1:1], words[2:]...)
}

// post sends a message over HTTP and returns the reply.
func (f *linesFixture) post(t *testing.T, token, line string) string {
	t.Helper()
	a := f.do(t, "POST", messagePath, token, line, "Content-Type", "text/x-lines")
	require.Equal(t, "text/x-lines", a.Header.Get("Content-Type"), a.body)
	return strings.TrimSpace(a.body)
}

// overHTTP returns a worker that sends and acknowledges by requests.
func (f *linesFixture) overHTTP(t *testing.T) linesWorker {
	t.Helper()
	return linesWorker{
		send: func(line string) string { return f.post(t, f.agents, line) },
		ack: func(id string) {
			a := f.do(t, "POST", "/api/agent/inbox/ack", f.agents, `{"message_ids":["`+id+`"]}`)
			require.JSONEq(t, `{"acknowledged":1}`, a.body)
		},
	}
}

// overConnection returns a worker on a bidirectional connection. It joins by a message if the
// protocol has no frames.
func (f *linesFixture) overConnection(t *testing.T, read func() string, write func(string), end func()) linesWorker {
	t.Helper()
	var messages []string
	next := func(isReply bool) string {
		for i, line := range messages {
			if isReply != strings.HasPrefix(line, "assign ") {
				messages = append(messages[:i], messages[i+1:]...)
				return line
			}
		}
		for {
			line := read()
			if isReply != strings.HasPrefix(line, "assign ") {
				return line
			}
			messages = append(messages, line)
		}
	}
	w := linesWorker{
		next: func() string { return next(false) },
		send: func(line string) string {
			write(line)
			return next(true)
		},
		close: func() {
			before := f.CachedWorker("ada").ConnectionID
			end()
			f.WaitForWorker(t, "ada", func(w models.Worker) bool { return w.ConnectionID != before || offline(w) })
		},
	}
	if f.framed {
		require.Contains(t, next(true), `{"hello":{"agent_id":"ada"`)
		w.ack = func(id string) { write(`{"ack":["` + id + `"]}`) }
	} else {
		require.Equal(t, "joined", w.send("join"))
	}
	return w
}

func webSocketLines(t *testing.T, f *linesFixture) linesWorker {
	conn, _, err := websocket.Dial(t.Context(), f.url+"/api/agent/connect", &websocket.DialOptions{
		HTTPHeader: http.Header{"Authorization": {"Bearer " + f.agents}}, Subprotocols: []string{"unknown", "lines.v1"},
	})
	require.NoError(t, err)
	require.Equal(t, "lines.v1", conn.Subprotocol())
	t.Cleanup(func() { _ = conn.CloseNow() })
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return f.overConnection(t, func() string {
		_, line, err := conn.Read(ctx)
		require.NoError(t, err)
		return string(line)
	}, func(line string) { require.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(line))) }, func() { _ = conn.CloseNow() })
}

func tcpLines(t *testing.T, f *linesFixture) linesWorker {
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", f.tcp)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(testTimeout)))
	in := bufio.NewReader(conn)
	write := func(line string) {
		_, err := conn.Write([]byte(line + "\n"))
		require.NoError(t, err)
	}
	write(`{"hello":{"protocol":"lines.v1","token":"` + f.agents + `"}}`)
	return f.overConnection(t, func() string {
		line, err := in.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSuffix(line, "\n")
	}, write, func() { _ = conn.Close() })
}

func sseLines(t *testing.T, f *linesFixture) linesWorker {
	stream := f.openStream(t, f.agents, "?protocol=lines.v1")
	require.Equal(t, "hello", stream.nextEvent().name)
	w := f.overHTTP(t)
	w.next = func() string {
		e := stream.nextEvent()
		require.Equal(t, "message", e.name)
		require.Contains(t, e.data, e.id)
		return e.data
	}
	w.close = func() {
		_ = stream.resp.Body.Close()
		f.WaitForWorker(t, "ada", offline)
	}
	return w
}

func pollLines(t *testing.T, f *linesFixture) linesWorker {
	w := f.overHTTP(t)
	poll := func(wait string) (out struct {
		Messages []struct {
			MessageID string `json:"message_id"`
			Text      string `json:"text"`
		}
	}) {
		a := f.do(t, "GET", "/api/agent/inbox?protocol=lines&limit=1&wait="+wait, f.agents, "")
		require.Equal(t, http.StatusOK, a.StatusCode, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &out))
		return out
	}
	if w := f.CachedWorker("ada"); w.AgentID == "" {
		require.Empty(t, poll("0").Messages)
	}
	w.next = func() string {
		out := poll("60")
		require.Len(t, out.Messages, 1)
		require.Contains(t, out.Messages[0].Text, out.Messages[0].MessageID)
		return out.Messages[0].Text
	}
	w.close = func() { f.DB.Clock.Advance(time.Second) } // the next poll may deliver the message again
	return w
}

func pushLines(t *testing.T, f *linesFixture) linesWorker {
	receiver := newPushReceiver(t)
	a := f.do(t, "PUT", pushPath, f.agents, `{"url":"`+receiver.URL+`/in","protocol":"lines.v1"}`)
	require.Equal(t, http.StatusOK, a.StatusCode, a.body)
	require.Contains(t, a.body, `"protocol":"lines"`)
	w, seen := f.overHTTP(t), 0
	w.ack = nil
	w.next = func() string {
		got := receiver.waitFor(t, seen+1)[seen]
		seen++
		require.Equal(t, "text/x-lines", got.kind)
		return got.body
	}
	receiver.respondWith("POST", http.StatusServiceUnavailable)
	w.close = func() { receiver.respondWith("POST", http.StatusOK) }
	return w
}

func natsLines(t *testing.T, f *linesFixture) linesWorker {
	inbox := make(chan string, 10_000)
	sub, err := f.bus.Subscribe(bus.AgentInboxes.Of("ada"), func(m bus.Message) {
		if len(m.Header["Message-Id"]) == 1 && strings.Contains(string(m.Data), m.Header["Message-Id"][0]) {
			inbox <- string(m.Data)
		}
	})
	require.NoError(t, err)
	require.NoError(t, f.bus.Flush(t.Context()))
	w := linesWorker{
		next: func() string {
			for {
				select {
				case line := <-inbox:
					return line
				case <-time.After(time.Millisecond):
					f.DB.Clock.Advance(time.Microsecond) // an unacknowledged message is published again; no deadline passes
				}
			}
		},
		send: func(line string) (reply string) {
			require.Eventually(t, func() bool {
				data, err := requestOver(f.bus, "ada", []byte("token="+f.agents+" "+line))
				reply = string(data)
				return err == nil
			}, testTimeout, 5*time.Millisecond)
			return reply
		},
		close: func() { sub.Unsubscribe() },
	}
	publish := func(line string) {
		require.NoError(t, f.bus.PublishWithHeader(bus.AgentOutboxes.Of("ada"), map[string][]string{
			"Authorization": {"Bearer " + f.agents}, "Content-Type": {"text/x-lines"},
		}, []byte(line)))
	}
	w.ack = func(id string) { publish(`{"ack":["` + id + `"]}`) }
	require.Eventually(t, func() bool { // until comet has subscribed
		publish("join") // later messages use the protocol that the agent joined with
		return online(f.CachedWorker("ada"))
	}, testTimeout, 10*time.Millisecond)
	return w
}
