package transport_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"comet/internal/orchestrator"
	"comet/internal/protocol"
	"comet/internal/protocol/envelope"
	v5 "comet/internal/protocol/v5"
	"comet/internal/testkit"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestWebSocketConnect(t *testing.T) {
	t.Parallel()
	runCase(t, "sends hello with the terms of the connection", &transport.Options{Heartbeat: 7 * time.Second}, func(t *testing.T, f *fixture) {
		c, err := f.dial(t, f.agent(t, "ada"), "?concurrency=3&versions=1.0,2.0", "other.v1", "notes.v1")
		require.NoError(t, err)
		require.Equal(t, "notes.v1", c.conn.Subprotocol())
		hello := c.next().Hello
		require.Equal(t, "ada", hello["agent_id"])
		require.Equal(t, "infra", hello["agent_type"])
		require.Equal(t, "1.0", hello["version"])
		require.EqualValues(t, 3, hello["concurrency"])
		require.EqualValues(t, 7, hello["heartbeat_seconds"])
		at, err := time.Parse(time.RFC3339, hello["server_time"].(string))
		require.NoError(t, err)
		require.Equal(t, f.DB.Clock.Now(), at.UTC())
		w := f.WaitForWorker(t, "ada", online)
		require.Equal(t, []any{"notes", transport.WebSocket, 3}, []any{w.Protocol, w.Transport, w.Concurrency})
	})
	runCase(t, "uses the default protocol if none is offered", nil, func(t *testing.T, f *fixture) {
		c, err := f.dial(t, f.agent(t, "ada"), "")
		require.NoError(t, err)
		require.Empty(t, c.conn.Subprotocol())
		require.NotEmpty(t, c.next().Hello)
	})
	runCase(t, "refuses unknown subprotocols", nil, func(t *testing.T, f *fixture) {
		c, err := f.dial(t, f.agent(t, "ada"), "", "other.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusBadRequest, c.resp.StatusCode)
	})
	runCase(t, "refuses a request without an upgrade", nil, func(t *testing.T, f *fixture) {
		a := f.do(t, "GET", "/api/agent/connect", f.agent(t, "ada"), "")
		require.Equal(t, http.StatusUpgradeRequired, a.StatusCode)
		require.Equal(t, "websocket", a.Header.Get("Upgrade"))
		require.Contains(t, a.body, "invalid-request")
	})
	runCase(t, "refuses versions without a common one before it closes", nil, func(t *testing.T, f *fixture) {
		c, err := f.dial(t, f.agent(t, "ada"), "?versions=2.0", "notes.v1")
		require.NoError(t, err)
		all, code := c.readUntilClosed()
		require.Len(t, all, 1)
		require.Equal(t, "unsupported-work", all[0].Refused)
		require.Equal(t, websocket.StatusProtocolError, code)
		require.Empty(t, f.CachedWorker("ada").ConnectionID)
	})
	runCase(t, "refuses tokens that are not bound to an agent", nil, func(t *testing.T, f *fixture) {
		c, err := f.dial(t, "nonsense", "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusUnauthorized, c.resp.StatusCode)
		c, err = f.dial(t, f.token(t, "", models.ScopeAdmin).Secret, "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusUnauthorized, c.resp.StatusCode)
	})
	runCase(t, "refuses more than MaxConnections", &transport.Options{MaxConnections: 1}, func(t *testing.T, f *fixture) {
		f.connect(t, f.agent(t, "ada"), "")
		c, err := f.dial(t, f.agent(t, "bob"), "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, c.resp.StatusCode)
	})
}

func TestWebSocketDelivers(t *testing.T) {
	t.Parallel()
	runCase(t, "each message once", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "?concurrency=2")
		task := f.submit(t, "ada")
		got := c.next()
		require.Equal(t, "assign", got.Do)
		require.Equal(t, task.ID, f.WaitForInbox(t, "ada", 1)[0].TaskID)
		f.enqueue(t, "ada", 1)
		cancel := c.next()
		require.Equal(t, "cancel", cancel.Do)
		require.Empty(t, c.barrier("b1"), "both were delivered")
		c.ack(got.ID, cancel.ID)
		f.WaitForInbox(t, "ada", 0)
		f.waitForMetric(t, 2, "comet_transport_messages_total", "out", "websocket")
	})
	runCase(t, "a long inbox", nil, func(t *testing.T, f *fixture) {
		const n = 350
		c := f.connect(t, f.agent(t, "ada"), "")
		f.enqueue(t, "ada", n)
		seen := map[string]bool{}
		for len(seen) < n {
			if s := c.next(); s.ID != "" {
				require.False(t, seen[s.ID], "once")
				seen[s.ID] = true
				c.ack(s.ID)
			}
		}
		f.WaitForInbox(t, "ada", 0)
	})
	runCase(t, "a long inbox whose messages were acknowledged elsewhere", nil, func(t *testing.T, f *fixture) {
		const n = 350
		c := f.connect(t, f.agent(t, "ada"), "")
		f.enqueue(t, "ada", n)
		for done := 0; done < n; done++ {
			_, err := f.Acknowledge(t.Context(), "ada", []string{c.next().ID}) // without the connection noticing
			require.NoError(t, err)
			f.OnWake(orchestrator.WakeInbox, "ada")
		}
		f.WaitForInbox(t, "ada", 0)
	})
	runCase(t, "unacknowledged messages again on the next connection", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		c := f.connect(t, token, "")
		f.submit(t, "ada")
		first := c.next()
		require.NoError(t, c.conn.CloseNow())
		f.WaitForWorker(t, "ada", offline)
		c = f.connect(t, token, "")
		require.Equal(t, first.ID, c.next().ID)
		c.ack(first.ID)
		f.WaitForInbox(t, "ada", 0)
	})
	runCase(t, "no more tasks than its concurrency", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		wide := f.connect(t, token, "?concurrency=3")
		for range 3 {
			f.submit(t, "ada")
		}
		f.WaitForInbox(t, "ada", 3)
		narrow := f.connect(t, token, "?concurrency=1")
		_, code := wide.readUntilClosed()
		require.Equal(t, websocket.StatusNormalClosure, code)
		first := narrow.next()
		f.enqueue(t, "ada", 1)
		require.Equal(t, "cancel", narrow.next().Do, "a notice does not wait")
		require.Empty(t, narrow.barrier("b1"))
		narrow.ack(first.ID)
		require.Equal(t, "assign", narrow.next().Do)
		require.Empty(t, narrow.barrier("b2"))
	})
	runCase(t, "no obsolete messages", nil, func(t *testing.T, f *fixture) {
		f.protocol.render = func(models.InboxMessage, int) ([][]byte, error) { return nil, nil }
		c := f.connect(t, f.agent(t, "ada"), "")
		f.enqueue(t, "ada", 3)
		f.WaitForInbox(t, "ada", 0)
		require.Empty(t, c.barrier("b1"))
	})
	runCase(t, "no more than the window without acknowledgements", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		f.enqueue(t, "ada", 150)
		seen := map[string]bool{}
		for range 101 { // one task, and 100 notices
			seen[c.next().ID] = true
		}
		require.Empty(t, c.barrier("b1"))
		for id := range seen {
			c.ack(id)
		}
		for range 49 {
			seen[c.next().ID] = true
		}
		require.Len(t, seen, 150, "each message once")
	})
}

func TestWebSocketReceives(t *testing.T) {
	t.Parallel()
	runCase(t, "a message and acknowledges it", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		c.send(note{ID: "m1"})
		require.Equal(t, []string{"m1"}, c.next().Ack)
		received := f.protocol.messages()
		require.Len(t, received, 1)
		require.Equal(t, "ada", *received[0].from.AgentID)
		f.waitForMetric(t, 1, "comet_transport_messages_total", "in", "websocket")
	})
	runCase(t, "a refused message and sends the refusal before the acknowledgement", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		c.send(note{ID: "m1", Do: "refuse"})
		require.Equal(t, "invalid-request", c.next().Refused)
		require.Equal(t, []string{"m1"}, c.next().Ack)
	})
	runCase(t, "a malformed message and refuses it", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		c.send([]int{1})
		require.Equal(t, "malformed-json", c.next().Refused)
		require.Empty(t, c.barrier("b1"), "there is no id to acknowledge")
	})
	runCase(t, "a malformed acknowledgement and refuses it", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		c.send(map[string]string{"ack": "m1"})
		require.Equal(t, "invalid-request", c.next().Refused)
		require.Empty(t, c.barrier("b1"), "it is not a message")
		require.Len(t, f.protocol.messages(), 1)
	})
	runCase(t, "a message and sends its reply", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		c.send(note{ID: "m1", Do: "reply"})
		require.Equal(t, "m1", c.next().Reply)
		require.Equal(t, []string{"m1"}, c.next().Ack)
	})
	runCase(t, "messages in order", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		c.send(note{ID: "m1", Do: "slow"})
		c.send(note{ID: "m2"})
		require.Eventually(t, func() bool { return len(f.protocol.messages()) == 1 }, time.Minute, 5*time.Millisecond)
		f.protocol.hold <- struct{}{}
		require.Equal(t, []string{"m1"}, c.next().Ack)
		require.Equal(t, []string{"m2"}, c.next().Ack)
	})
	runCase(t, "no message over the limit", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		// The server may close the connection before everything is written.
		_ = c.conn.Write(t.Context(), websocket.MessageText, []byte(`{"id":"`+strings.Repeat("x", transport.MaxMessageBytes)+`"}`))
		_, err := c.read()
		var closed websocket.CloseError
		require.ErrorAs(t, err, &closed)
		require.Equal(t, websocket.CloseError{Code: websocket.StatusMessageTooBig, Reason: "a message has at most 8 MiB"}, closed)
	})
}

func TestWebSocketEnds(t *testing.T) {
	t.Parallel()
	soon := &transport.Options{Heartbeat: testHeartbeat}
	runCase(t, "when the agent disconnects, which takes it offline", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		f.WaitForWorker(t, "ada", online)
		require.NoError(t, c.conn.Close(websocket.StatusNormalClosure, ""))
		f.WaitForWorker(t, "ada", offline)
		f.waitForMetric(t, 0, "comet_transport_connections", "websocket")
	})
	runCase(t, "when the agent opens a newer one, which stays", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		older := f.connect(t, token, "")
		newer := f.connect(t, token, "")
		all, code := older.readUntilClosed()
		require.Equal(t, "replaced", all[len(all)-1].Bye["reason"])
		require.Equal(t, websocket.StatusNormalClosure, code)
		f.waitForMetric(t, 1, "comet_transport_connections", "websocket")
		require.Empty(t, newer.barrier("b1"))
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State)
	})
	runCase(t, "when the agent connects to another process", soon, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		older := f.connect(t, token, "")
		other := openFixture(t, startWork(t, f.DB), nil, nil)
		newer := other.connect(t, token, "")
		all, _ := older.readUntilClosed()
		require.Equal(t, "replaced", all[len(all)-1].Bye["reason"])
		require.Empty(t, newer.barrier("b1"))
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State)
	})
	runCase(t, "soon after its token is revoked", soon, func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		issued := f.token(t, "ada")
		c := f.connect(t, issued.Secret, "")
		require.NoError(t, f.auth.Revoke(t.Context(), testkit.Admin(), issued.Token.ID, nil))
		all, code := c.readUntilClosed()
		require.Equal(t, "token not accepted", all[len(all)-1].Bye["reason"])
		require.Equal(t, websocket.StatusPolicyViolation, code)
		f.WaitForWorker(t, "ada", offline)
	})
	runCase(t, "at the first message after its token is revoked, which has no effect", nil, func(t *testing.T, f *fixture) {
		f.agent(t, "ada")
		issued := f.token(t, "ada")
		c := f.connect(t, issued.Secret, "")
		require.NoError(t, f.auth.Revoke(t.Context(), testkit.Admin(), issued.Token.ID, nil))
		c.send(note{ID: "m1"})
		all, _ := c.readUntilClosed()
		require.Equal(t, "unauthenticated", all[0].Refused)
		require.Empty(t, f.protocol.messages())
	})
	runCase(t, "when the server drains, with bye", nil, func(t *testing.T, f *fixture) {
		c := f.connect(t, f.agent(t, "ada"), "")
		f.transports.Drain()
		all, code := c.readUntilClosed()
		require.Equal(t, "draining", all[len(all)-1].Bye["reason"])
		require.Equal(t, websocket.StatusGoingAway, code)
		require.NoError(t, f.transports.Stop(t.Context()))
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State, "it will reconnect, and tasks can be submitted meanwhile")
		c, err := f.dial(t, f.agent(t, "bob"), "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, c.resp.StatusCode)
	})
	runCase(t, "after two unanswered pings", soon, func(t *testing.T, f *fixture) {
		f.dialUnread(t, f.agent(t, "ada"))
		f.WaitForWorker(t, "ada", offline)
		f.waitForMetric(t, 0, "comet_transport_connections", "websocket")
	})
	runCase(t, "when the agent does not read", &transport.Options{WriteTimeout: 200 * time.Millisecond}, func(t *testing.T, f *fixture) {
		f.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			return [][]byte{[]byte(`{"id":"` + m.ID + `","text":"` + strings.Repeat("x", 8<<20) + `"}`)}, nil
		}
		f.dialUnread(t, f.agent(t, "ada"))
		f.enqueue(t, "ada", 20)
		f.WaitForWorker(t, "ada", offline)
		f.WaitForInbox(t, "ada", 20)
	})
}

// jumpingClock returns options with a clock that advances by an hour at each call.
func jumpingClock() *transport.Options {
	var looks atomic.Int64
	began := time.Now()
	return &transport.Options{Heartbeat: testHeartbeat, Clock: func() time.Time { return began.Add(time.Duration(looks.Add(1)) * time.Hour) }}
}

func TestWebSocketKeepsAgentOnline(t *testing.T) {
	t.Parallel()
	soon := &transport.Options{Heartbeat: testHeartbeat}
	runCase(t, "while it answers pings", soon, func(t *testing.T, f *fixture) {
		f.connect(t, f.agent(t, "ada"), "")
		f.WaitForWorker(t, "ada", online)
		for range 4 { // together longer than the timeout
			f.DB.Clock.Advance(30 * time.Second)
			f.waitForHeartbeat(t, "ada")
		}
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State)
	})
	runCase(t, "again after the server marked it offline by mistake", jumpingClock(), func(t *testing.T, f *fixture) {
		f.connect(t, f.agent(t, "ada"), "")
		f.WaitForWorker(t, "ada", online)
		require.NoError(t, f.Leave(t.Context(), "ada", false))
		f.WaitForWorker(t, "ada", online)
	})
	runCase(t, "again after other processes took this one for dead", soon, func(t *testing.T, f *fixture) {
		f.connect(t, f.agent(t, "ada"), "")
		f.WaitForWorker(t, "ada", online)
		require.NoError(t, f.Disconnect(t.Context(), "ada", f.CachedWorker("ada").ConnectionID))
		f.WaitForWorker(t, "ada", offline)
		f.transports.Rejoin()
		f.WaitForWorker(t, "ada", online)
	})
	runCase(t, "unless the agent declared itself offline", soon, func(t *testing.T, f *fixture) {
		f.connect(t, f.agent(t, "ada"), "")
		f.WaitForWorker(t, "ada", online)
		require.NoError(t, f.Leave(t.Context(), "ada", false))
		f.DB.Clock.Advance(100 * time.Millisecond)
		f.waitForHeartbeat(t, "ada") // its connection still has heartbeats
		require.Equal(t, models.WorkerOffline, f.CachedWorker("ada").State)
		_, err := f.Heartbeat(t.Context(), "ada", orchestrator.Heartbeat{State: models.WorkerOnline})
		require.NoError(t, err)
		f.WaitForWorker(t, "ada", online)
	})
}

// dialRaw opens a TCP connection, requests a WebSocket and sends more bytes at once.
func (f *fixture) dialRaw(t *testing.T, token, more string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(f.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("GET /api/agent/connect HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer " + token + "\r\n\r\n" + more))
	require.NoError(t, err)
	return conn
}

func TestWebSocketReadsEarlyFrames(t *testing.T) {
	t.Parallel()
	runCase(t, "although the buffers are replaced", nil, func(t *testing.T, f *fixture) {
		frames := ""
		for i := range 50 { // more than the small buffer can hold
			text := fmt.Sprintf(`{"id":"early-%d"}`, i)
			frames += string([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}) + text // masked with zeros
		}
		f.dialRaw(t, f.agent(t, "ada"), frames)
		require.Eventually(t, func() bool { return len(f.protocol.messages()) == 50 }, time.Minute, 5*time.Millisecond)
	})
}

// waitForHeartbeat waits until the agent is recorded as alive at the current time of the database
// clock.
func (f *fixture) waitForHeartbeat(t *testing.T, agentID string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w, err := f.Worker(t.Context(), agentID)
		return err == nil && w.LastSeenAt.Equal(f.DB.Clock.Now())
	}, time.Minute, 5*time.Millisecond)
}

func TestProbingBreakerCloses(t *testing.T) {
	t.Parallel()
	pause := func(t *testing.T, f *fixture) {
		t.Helper()
		require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error {
			w, err := tx.Workers().Lock("ada")
			if err != nil {
				return err
			}
			w.BreakerUntil, w.Probing, w.Failures = tx.Now(), true, 5
			return tx.Workers().Save(&w)
		}))
	}
	requireClosed := func(t *testing.T, f *fixture, do func()) {
		t.Helper()
		require.Eventually(t, func() bool {
			do()
			w, err := f.Worker(context.Background(), "ada")
			return err == nil && w.BreakerUntil.IsZero() && !w.Probing && w.Failures == 0
		}, time.Minute, 5*time.Millisecond)
	}
	wait := func() {}
	runCase(t, "after an answered ping", &transport.Options{Heartbeat: testHeartbeat}, func(t *testing.T, f *fixture) {
		f.connect(t, f.agent(t, "ada"), "")
		f.WaitForWorker(t, "ada", online)
		pause(t, f)
		requireClosed(t, f, wait)
	})
	runCase(t, "after an answered push probe", shortIntervals(), func(t *testing.T, f *fixture) {
		m := newPushReceiver(t)
		f.registerPush(t, f.agent(t, "ada"), m)
		f.WaitForWorker(t, "ada", isPushed)
		pause(t, f)
		requireClosed(t, f, wait)
		require.Eventually(t, func() bool { return m.probes() > 0 }, time.Minute, 5*time.Millisecond)
	})
	runCase(t, "after a poll", nil, func(t *testing.T, f *fixture) {
		token := f.agent(t, "ada")
		f.poll(t, token, "")
		pause(t, f)
		requireClosed(t, f, func() { f.poll(t, token, "") })
	})
}

// TestUnknownSubprotocol: the refusal names the offered and the supported subprotocols.
func TestUnknownSubprotocol(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		f := openFixture(t, startWork(t, db), nil, func(c *transport.Core) {
			c.Protocols = []protocol.Protocol{envelope.New(c.Work, nil), v5.New(c.Work, db.Store, nil)}
		})
		a := f.do(t, "GET", "/api/agent/connect", f.agent(t, "ada"), "",
			"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Protocol", "v6, envelope.v9")
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Contains(t, a.body, `none of the offered subprotocols is supported: the server supports envelope.v1, v5, the client offered \"v6, envelope.v9\"`)
	})
}
