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
	"comet/internal/protocol/v5"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
	"comet/store/storetest"
)

func TestAWebSocketBegins(t *testing.T) {
	t.Parallel()
	runCase(t, "with a hello that says on what terms", &transport.Options{Heartbeat: 7 * time.Second}, func(t *testing.T, h *fixture) {
		c, err := h.dial(t, h.agent(t, "ada"), "?concurrency=3&versions=1.0,2.0", "other.v1", "notes.v1")
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
		require.Equal(t, h.db.Clock.Now(), at.UTC())
		w := h.waitForWorker(t, "ada", online)
		require.Equal(t, []any{"notes", transport.WebSocket, 3}, []any{w.Protocol, w.Transport, w.Concurrency})
	})
	runCase(t, "in the first dialect where none is asked for", nil, func(t *testing.T, h *fixture) {
		c, err := h.dial(t, h.agent(t, "ada"), "")
		require.NoError(t, err)
		require.Empty(t, c.conn.Subprotocol())
		require.NotEmpty(t, c.next().Hello)
	})
	runCase(t, "not where only other dialects are asked for", nil, func(t *testing.T, h *fixture) {
		c, err := h.dial(t, h.agent(t, "ada"), "", "other.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusBadRequest, c.resp.StatusCode)
	})
	runCase(t, "not where nobody asks for a WebSocket", nil, func(t *testing.T, h *fixture) {
		a := h.do(t, "GET", "/api/agent/connect", h.agent(t, "ada"), "")
		require.Equal(t, http.StatusUpgradeRequired, a.StatusCode)
		require.Equal(t, "websocket", a.Header.Get("Upgrade"))
		require.Contains(t, a.body, "invalid-request")
	})
	runCase(t, "not without a version in common, which is said before the end", nil, func(t *testing.T, h *fixture) {
		c, err := h.dial(t, h.agent(t, "ada"), "?versions=2.0", "notes.v1")
		require.NoError(t, err)
		all, code := c.readUntilClosed()
		require.Len(t, all, 1)
		require.Equal(t, "unsupported-work", all[0].Refused)
		require.Equal(t, websocket.StatusProtocolError, code)
		require.Empty(t, h.CachedWorker("ada").ConnectionID)
	})
	runCase(t, "not with a token of nobody", nil, func(t *testing.T, h *fixture) {
		c, err := h.dial(t, "nonsense", "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusUnauthorized, c.resp.StatusCode)
		c, err = h.dial(t, h.token(t, "", models.ScopeAdmin).Secret, "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusUnauthorized, c.resp.StatusCode)
	})
	runCase(t, "not over the number of lines", &transport.Options{MaxConnections: 1}, func(t *testing.T, h *fixture) {
		h.connect(t, h.agent(t, "ada"), "")
		c, err := h.dial(t, h.agent(t, "bob"), "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, c.resp.StatusCode)
	})
}

func TestAWebSocketHandsOver(t *testing.T) {
	t.Parallel()
	runCase(t, "what comes, once, until it is acknowledged", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "?concurrency=2")
		task := h.submit(t, "ada")
		got := c.next()
		require.Equal(t, "assign", got.Do)
		require.Equal(t, task.ID, h.waitForInbox(t, "ada", 1)[0].TaskID)
		h.enqueue(t, "ada", 1)
		cancel := c.next()
		require.Equal(t, "cancel", cancel.Do)
		require.Empty(t, c.barrier("b1"), "both were handed over")
		c.ack(got.ID, cancel.ID)
		h.waitForInbox(t, "ada", 0)
		h.waitForMetric(t, 2, "comet_transport_messages_total", "out", "websocket")
	})
	runCase(t, "an inbox that is longer than what is read of it at a time", nil, func(t *testing.T, h *fixture) {
		const n = 350
		c := h.connect(t, h.agent(t, "ada"), "")
		h.enqueue(t, "ada", n)
		seen := map[string]bool{}
		for len(seen) < n {
			if s := c.next(); s.ID != "" {
				require.False(t, seen[s.ID], "once")
				seen[s.ID] = true
				c.ack(s.ID)
			}
		}
		h.waitForInbox(t, "ada", 0)
	})
	runCase(t, "a long inbox also where what it had was acknowledged or taken back elsewhere", nil, func(t *testing.T, h *fixture) {
		const n = 350
		c := h.connect(t, h.agent(t, "ada"), "")
		h.enqueue(t, "ada", n)
		for done := 0; done < n; done++ {
			_, err := h.Acknowledge(t.Context(), "ada", []string{c.next().ID}) // of which the line is not told
			require.NoError(t, err)
			h.OnWake(orchestrator.WakeInbox, "ada")
		}
		h.waitForInbox(t, "ada", 0)
	})
	runCase(t, "all that is not acknowledged again on the next line", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		c := h.connect(t, token, "")
		h.submit(t, "ada")
		first := c.next()
		require.NoError(t, c.conn.CloseNow())
		h.waitForWorker(t, "ada", offline)
		c = h.connect(t, token, "")
		require.Equal(t, first.ID, c.next().ID)
		c.ack(first.ID)
		h.waitForInbox(t, "ada", 0)
	})
	runCase(t, "no more work than it has places, and the rest once there is room", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		wide := h.connect(t, token, "?concurrency=3")
		for range 3 {
			h.submit(t, "ada")
		}
		h.waitForInbox(t, "ada", 3)
		narrow := h.connect(t, token, "?concurrency=1")
		_, code := wide.readUntilClosed()
		require.Equal(t, websocket.StatusNormalClosure, code)
		first := narrow.next()
		h.enqueue(t, "ada", 1)
		require.Equal(t, "cancel", narrow.next().Do, "what is no work goes ahead")
		require.Empty(t, narrow.barrier("b1"))
		narrow.ack(first.ID)
		require.Equal(t, "assign", narrow.next().Do)
		require.Empty(t, narrow.barrier("b2"))
	})
	runCase(t, "nothing that is not true any more", nil, func(t *testing.T, h *fixture) {
		h.protocol.render = func(models.InboxMessage, int) ([][]byte, error) { return nil, nil }
		c := h.connect(t, h.agent(t, "ada"), "")
		h.enqueue(t, "ada", 3)
		h.waitForInbox(t, "ada", 0)
		require.Empty(t, c.barrier("b1"))
	})
	runCase(t, "not more than the window while nothing is acknowledged", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		h.enqueue(t, "ada", 150)
		seen := map[string]bool{}
		for range 101 { // one place, and 100 beside
			seen[c.next().ID] = true
		}
		require.Empty(t, c.barrier("b1"))
		for id := range seen {
			c.ack(id)
		}
		for range 49 {
			seen[c.next().ID] = true
		}
		require.Len(t, seen, 150, "each of them once")
	})
}

func TestAWebSocketTakes(t *testing.T) {
	t.Parallel()
	runCase(t, "a message, and acknowledges it", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		c.send(note{ID: "m1"})
		require.Equal(t, []string{"m1"}, c.next().Ack)
		heard := h.protocol.messages()
		require.Len(t, heard, 1)
		require.Equal(t, "ada", *heard[0].from.AgentID)
		h.waitForMetric(t, 1, "comet_transport_messages_total", "in", "websocket")
	})
	runCase(t, "one it refuses, and says why before it acknowledges", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		c.send(note{ID: "m1", Do: "refuse"})
		require.Equal(t, "invalid-request", c.next().Refused)
		require.Equal(t, []string{"m1"}, c.next().Ack)
	})
	runCase(t, "one it cannot read, and says so", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		c.send([]int{1})
		require.Equal(t, "malformed-json", c.next().Refused)
		require.Empty(t, c.barrier("b1"), "there was nothing to acknowledge")
	})
	runCase(t, "one that has a reply, and replies", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		c.send(note{ID: "m1", Do: "reply"})
		require.Equal(t, "m1", c.next().Reply)
		require.Equal(t, []string{"m1"}, c.next().Ack)
	})
	runCase(t, "messages in their order, one at a time", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		c.send(note{ID: "m1", Do: "slow"})
		c.send(note{ID: "m2"})
		require.Eventually(t, func() bool { return len(h.protocol.messages()) == 1 }, time.Minute, time.Millisecond)
		h.protocol.hold <- struct{}{}
		require.Equal(t, []string{"m1"}, c.next().Ack)
		require.Equal(t, []string{"m2"}, c.next().Ack)
	})
	runCase(t, "no message over the limit", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		// The other end may be gone before all was written.
		_ = c.conn.Write(t.Context(), websocket.MessageText, []byte(`{"id":"`+strings.Repeat("x", transport.MaxMessageBytes)+`"}`))
		_, code := c.readUntilClosed()
		require.Equal(t, websocket.StatusMessageTooBig, code)
	})
}

func TestAWebSocketEnds(t *testing.T) {
	t.Parallel()
	soon := &transport.Options{Heartbeat: 150 * time.Millisecond}
	runCase(t, "when the agent hangs up, which takes it off the line", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		h.waitForWorker(t, "ada", online)
		require.NoError(t, c.conn.Close(websocket.StatusNormalClosure, ""))
		h.waitForWorker(t, "ada", offline)
		h.waitForMetric(t, 0, "comet_transport_connections", "websocket")
	})
	runCase(t, "when the agent comes on another one, which stays", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		older := h.connect(t, token, "")
		newer := h.connect(t, token, "")
		all, code := older.readUntilClosed()
		require.Equal(t, "replaced", all[len(all)-1].Bye["reason"])
		require.Equal(t, websocket.StatusNormalClosure, code)
		h.waitForMetric(t, 1, "comet_transport_connections", "websocket")
		require.Empty(t, newer.barrier("b1"))
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State)
	})
	runCase(t, "when the agent comes on a line of another process", soon, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		older := h.connect(t, token, "")
		other := openFixture(t, newBackend(t, h.db), soon, nil)
		newer := other.connect(t, token, "")
		all, _ := older.readUntilClosed()
		require.Equal(t, "replaced", all[len(all)-1].Bye["reason"])
		require.Empty(t, newer.barrier("b1"))
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State)
	})
	runCase(t, "soon after its token was revoked", soon, func(t *testing.T, h *fixture) {
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		c := h.connect(t, issued.Secret, "")
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		all, code := c.readUntilClosed()
		require.Equal(t, "token not accepted", all[len(all)-1].Bye["reason"])
		require.Equal(t, websocket.StatusPolicyViolation, code)
		h.waitForWorker(t, "ada", offline)
	})
	runCase(t, "at the first message after its token was revoked, which has no effect", nil, func(t *testing.T, h *fixture) {
		h.agent(t, "ada")
		issued := h.token(t, "ada")
		c := h.connect(t, issued.Secret, "")
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		c.send(note{ID: "m1"})
		all, _ := c.readUntilClosed()
		require.Equal(t, "unauthenticated", all[0].Refused)
		require.Empty(t, h.protocol.messages())
	})
	runCase(t, "when the server does, with a good-bye", nil, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		h.transports.Drain()
		all, code := c.readUntilClosed()
		require.Equal(t, "draining", all[len(all)-1].Bye["reason"])
		require.Equal(t, websocket.StatusGoingAway, code)
		require.NoError(t, h.transports.Stop(t.Context()))
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State, "it comes back, and meanwhile work can be asked of it")
		c, err := h.dial(t, h.agent(t, "bob"), "", "notes.v1")
		require.Error(t, err)
		require.Equal(t, http.StatusServiceUnavailable, c.resp.StatusCode)
	})
	runCase(t, "when two pings were not answered", soon, func(t *testing.T, h *fixture) {
		h.connect(t, h.agent(t, "ada"), "") // nobody reads, so nobody answers
		h.waitForWorker(t, "ada", offline)
	})
	runCase(t, "when the agent does not read", &transport.Options{WriteTimeout: 200 * time.Millisecond}, func(t *testing.T, h *fixture) {
		h.protocol.render = func(m models.InboxMessage, _ int) ([][]byte, error) {
			return [][]byte{[]byte(`{"id":"` + m.ID + `","text":"` + strings.Repeat("x", 8<<20) + `"}`)}, nil
		}
		c := h.connect(t, h.agent(t, "ada"), "")
		h.enqueue(t, "ada", 20)
		h.waitForWorker(t, "ada", offline)
		h.waitForInbox(t, "ada", 20)
		_ = c.conn.CloseNow()
	})
}

// jumpingClock are options for a server that loses an hour whenever it looks at the clock.
func jumpingClock() *transport.Options {
	var looks atomic.Int64
	began := time.Now()
	return &transport.Options{Heartbeat: 75 * time.Millisecond, Clock: func() time.Time { return began.Add(time.Duration(looks.Add(1)) * time.Hour) }}
}

func TestALineKeepsItsAgentOnline(t *testing.T) {
	t.Parallel()
	soon := &transport.Options{Heartbeat: 75 * time.Millisecond}
	runCase(t, "as long as it answers pings", soon, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		go func() { _, _ = c.read() }() // answers pings until the end of the test
		h.waitForWorker(t, "ada", online)
		for range 4 { // together longer than it may be silent
			h.db.Clock.Advance(30 * time.Second)
			h.waitForHeartbeat(t, "ada")
		}
		require.Equal(t, models.WorkerOnline, h.CachedWorker("ada").State)
	})
	runCase(t, "again after the server itself had lost count", jumpingClock(), func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		go func() { _, _ = c.read() }()
		h.waitForWorker(t, "ada", online)
		require.NoError(t, h.Leave(t.Context(), "ada", false))
		h.waitForWorker(t, "ada", online)
	})
	runCase(t, "but not where the agent has said that it is offline", soon, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		go func() { _, _ = c.read() }()
		h.waitForWorker(t, "ada", online)
		require.NoError(t, h.Leave(t.Context(), "ada", false))
		h.db.Clock.Advance(100 * time.Millisecond)
		h.waitForHeartbeat(t, "ada") // its line is looked after all the same
		require.Equal(t, models.WorkerOffline, h.CachedWorker("ada").State)
		_, err := h.Heartbeat(t.Context(), "ada", orchestrator.Heartbeat{State: models.WorkerOnline})
		require.NoError(t, err)
		h.waitForWorker(t, "ada", online)
	})
}

// dialRaw opens a connection, asks for a WebSocket and sends more at once.
func (h *fixture) dialRaw(t *testing.T, token, more string) net.Conn {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	_, err = conn.Write([]byte("GET /api/agent/connect HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nAuthorization: Bearer " + token + "\r\n\r\n" + more))
	require.NoError(t, err)
	return conn
}

func TestWhatComesWithTheRequestIsHeard(t *testing.T) {
	t.Parallel()
	runCase(t, "though the buffer it came in is given back", nil, func(t *testing.T, h *fixture) {
		frames := ""
		for i := range 50 { // more than the small buffer takes
			text := fmt.Sprintf(`{"id":"early-%d"}`, i)
			frames += string([]byte{0x81, 0x80 | byte(len(text)), 0, 0, 0, 0}) + text // masked with zeros
		}
		h.dialRaw(t, h.agent(t, "ada"), frames)
		require.Eventually(t, func() bool { return len(h.protocol.messages()) == 50 }, time.Minute, time.Millisecond)
	})
}

// waitForHeartbeat waits for a sign of life to be noted at this moment of the database's clock.
func (h *fixture) waitForHeartbeat(t *testing.T, agentID string) {
	t.Helper()
	require.Eventually(t, func() bool {
		w, err := h.Worker(t.Context(), agentID)
		return err == nil && w.LastSeenAt.Equal(h.db.Clock.Now())
	}, time.Minute, time.Millisecond)
}

// TestADeadPeerIsNoticed: a peer that vanished without a word.
func TestADeadPeerIsNoticed(t *testing.T) {
	t.Parallel()
	runCase(t, "by its silence", &transport.Options{Heartbeat: 75 * time.Millisecond}, func(t *testing.T, h *fixture) {
		h.dialRaw(t, h.agent(t, "ada"), "")
		h.waitForWorker(t, "ada", online)
		h.waitForWorker(t, "ada", offline)
		h.waitForMetric(t, 0, "comet_transport_connections", "websocket")
	})
}

func TestABreakerThatWaitsForASignOfLife(t *testing.T) {
	t.Parallel()
	pause := func(t *testing.T, h *fixture) {
		t.Helper()
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			w, err := tx.Worker("ada")
			if err != nil {
				return err
			}
			w.BreakerUntil, w.Probing, w.Failures = tx.Now(), true, 5
			return tx.SaveWorker(&w)
		}))
	}
	requireClosed := func(t *testing.T, h *fixture, do func()) {
		t.Helper()
		require.Eventually(t, func() bool {
			do()
			w, err := h.Worker(context.Background(), "ada")
			return err == nil && w.BreakerUntil.IsZero() && !w.Probing && w.Failures == 0
		}, time.Minute, time.Millisecond)
	}
	wait := func() {}
	runCase(t, "is closed by the answer to a ping", &transport.Options{Heartbeat: 150 * time.Millisecond}, func(t *testing.T, h *fixture) {
		c := h.connect(t, h.agent(t, "ada"), "")
		go func() { _, _ = c.read() }()
		h.waitForWorker(t, "ada", online)
		pause(t, h)
		requireClosed(t, h, wait)
	})
	runCase(t, "is closed by the answer to a probe", shortIntervals(), func(t *testing.T, h *fixture) {
		m := newPushReceiver(t)
		h.registerPush(t, h.agent(t, "ada"), m)
		h.waitForWorker(t, "ada", isPushed)
		pause(t, h)
		requireClosed(t, h, wait)
		require.Eventually(t, func() bool { return m.probes() > 0 }, time.Minute, time.Millisecond)
	})
	runCase(t, "is closed by asking for the inbox", nil, func(t *testing.T, h *fixture) {
		token := h.agent(t, "ada")
		h.poll(t, token, "")
		pause(t, h)
		requireClosed(t, h, func() { h.poll(t, token, "") })
	})
}

// TestASubprotocolThatThereIsNot is refused with what was offered and what there is.
func TestASubprotocolThatThereIsNot(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T, db *storetest.DB) {
		h := openFixture(t, newBackend(t, db), nil, func(c *transport.Core) {
			c.Protocols = []protocol.Protocol{envelope.New(c.Work, nil), v5.New(c.Work, nil)}
		})
		a := h.do(t, "GET", "/api/agent/connect", h.agent(t, "ada"), "",
			"Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Protocol", "v6, envelope.v9")
		require.Equal(t, http.StatusBadRequest, a.StatusCode)
		require.Contains(t, a.body, `none of the offered subprotocols is supported: the server supports envelope.v1, v5, the client offered \"v6, envelope.v9\"`)
	})
}
