package transport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/errs"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
)

const join = "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5"

// TestAStrangerOverTCP: what becomes of a connection before it is an agent's.
func TestAStrangerOverTCP(t *testing.T) {
	t.Parallel()
	quick := transport.TCPOptions{HandshakeTimeout: 30 * time.Millisecond}
	runV5Case(t, "is sent away where his first line is no J", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		for _, first := range []string{queryAgents, "M1|User>O1|R|-|-|-|-|0|-|-|call=web_search", "M1|User>O1|J|T0|-|-|-|0|S0|-|-"} {
			g, _ := h.dialTCP(t)
			g.sendLine(first)
			said := g.readUntilClosed()
			require.Len(t, said, 1)
			require.Contains(t, said[0], "|F|E13|", first)
			require.Contains(t, said[0], "first line must be a worker's J")
		}
		g, _ := h.dialTCP(t)
		g.sendLine("GET / HTTP/1.1\r")
		said := g.readUntilClosed()
		require.Len(t, said, 1)
		require.Equal(t, `O1>User|E|-|-|F|E10|0|-|-|desc=invalid message format;details=the line has 1 segment, not 11, or 8 in V4`, withoutNumbers(said[0]))
		h.waitForMetric(t, 0, "comet_transport_connections", transport.TCP)
		require.Empty(t, h.names, "nobody is registered")
	})
	runV5Case(t, "is sent away without a word where he says nothing", transport.Options{}, quick, func(t *testing.T, h *v5Fixture) {
		g, _ := h.dialTCP(t)
		require.Empty(t, g.readUntilClosed())
	})
	runV5Case(t, "gains no time by empty lines", transport.Options{}, quick, func(t *testing.T, h *v5Fixture) {
		g, _ := h.dialTCP(t)
		var err error
		for err == nil {
			err = g.send("")
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	})
	runV5Case(t, "is not let in beside too many others", transport.Options{}, transport.TCPOptions{MaxUnauthenticated: 1}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		one, _ := h.dialTCP(t)
		two, _ := h.dialTCP(t)
		require.Empty(t, two.readUntilClosed())
		one.sendLine(join + ";token=" + token)
		require.Contains(t, one.next(), "registered")
		require.Eventually(t, func() bool { // one is none any more
			three, _ := h.dialTCP(t)
			_ = three.send("nonsense")
			text, err := three.read()
			return err == nil && strings.Contains(text, "|E10|")
		}, time.Minute, time.Millisecond)
	})
	runV5Case(t, "is told where there are as many lines as there may be", transport.Options{MaxConnections: 1}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		h.joinOver(t, transport.TCP, h.firstAgent(t, "ada"), "")
		g, _ := h.dialTCP(t)
		g.sendLine(join + ";token=" + h.agent(t, "bob"))
		said := g.readUntilClosed()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "|F|E30|")
	})
	runV5Case(t, "is let go when the listener stops", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		g, _ := h.dialTCP(t)
		require.NoError(t, h.listener.Stop(t.Context()))
		require.Empty(t, g.readUntilClosed())
	})
}

// TestATokenOverTCP (decisions: “Who is speaking”).
func TestATokenOverTCP(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	runV5Case(t, "names the agent, and goes no further", transport.Options{Logger: logger}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		g, _ := h.dialTCP(t)
		g.sendLine("M1|W1>O1|J|T0|-|-|-|0|S0|-|token=" + token + ";caps=custom:ada;concurrency=2")
		said := g.next()
		require.Contains(t, said, "registered;id=W1")
		require.True(t, h.protocol.received("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=custom:ada;concurrency=2"), "%q", h.protocol.lines)
		w := h.waitForWorker(t, "ada", online)
		require.Equal(t, []any{transport.TCP, 2}, []any{w.Transport, w.Concurrency})
		require.NotContains(t, said, token)
		require.NotContains(t, strings.Join(h.protocol.lines, "\n"), token)
		mu.Lock()
		defer mu.Unlock()
		require.NotContains(t, log.String(), token)
		require.Empty(t, h.names, "nobody is registered")
	})
	runV5Case(t, "that is wrong is refused, counted, logged, and not echoed", transport.Options{MaxFailures: 3, Logger: logger}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		known, fresh := h.firstAgent(t, "ada"), h.agent(t, "bob")
		h.joinOver(t, transport.TCP, known, "")
		for i := range 3 {
			require.Equal(t, refusedToken, h.turnedAway(t, fmt.Sprintf("sesame-%d", i)))
			h.waitForMetric(t, i+1, "comet_transport_authentication_failures_total")
		}
		mu.Lock()
		require.Contains(t, log.String(), "a connection was refused")
		require.NotContains(t, log.String(), "sesame-")
		mu.Unlock()
		require.Equal(t, refusedToken, h.turnedAway(t, fresh), "this address has tried too many")
		h.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
		h.joinOver(t, transport.TCP, known, "") // which was accepted before
		require.Equal(t, 429, h.do(t, "GET", "/api/agent/inbox", "sesame", "").StatusCode, "over HTTP too")
		h.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
	})
	runV5Case(t, "that is bound to no agent is refused", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		require.Equal(t, refusedToken, h.turnedAway(t, h.token(t, "", models.ScopeAdmin).Secret))
	})
	runV5Case(t, "of an agent that is deactivated is refused", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		h.deactivate(t, "ada")
		require.Equal(t, refusedToken, h.turnedAway(t, token))
	})
	runV5Case(t, "that is cut off with the end of DATA registers nobody", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		g, _ := h.dialTCP(t)
		g.sendLine("M1|W1>O1|J|T0|-|-|-|0|S0|-|desc=" + strings.Repeat("x", 200) + ";token=" + token)
		require.Contains(t, strings.Join(g.readUntilClosed(), "\n"), "|F|E10|0|S0|-|desc=")
		require.Empty(t, h.names)
		g, _ = h.dialTCP(t)
		g.sendLine("M1|W1>O1|J|T0|-|-|-|0|S0|-|token=" + token + ";desc=" + strings.Repeat("x", 200))
		require.Contains(t, g.next(), "registered;id=W1", "one that stands before that is found")
	})
	runV5Case(t, "is not shown in what is said of a J that is wrong", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		for _, line := range []string{
			"M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=a>b;token=" + token,
			"M1|W1>O1|J|T0|-|-|-|0|S0|token=" + token,
			"M1|W1>O1|J|T0|-|-|-|0|token=" + token + "|-|-",
			"M1|W1>O1|J|T0|-|-|-|token=" + token + "|S0|-|-",
			"token=" + token,
			"M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V3;token=" + token,
			"M1|W1>O1|J|T0|-|-|-|token=" + token,
			"M1|W1>O1|J|T0|-|-|-|0|S0|-|token=" + token + strings.Repeat("x", 70_000),
		} {
			g, _ := h.dialTCP(t)
			g.sendLine(line)
			said := g.next()
			require.Contains(t, said, "|E|")
			require.NotContains(t, said, token[:8])
			g.close()
		}
	})
}

// refusedToken is all that is said of one.
const refusedToken = "O1>W1|E|T0|-|F|E90|0|S0|-|reason=token;desc=the token is not accepted"

// turnedAway says J with a token and returns all that is answered.
func (h *v5Fixture) turnedAway(t *testing.T, token string) string {
	t.Helper()
	g, _ := h.dialTCP(t)
	g.sendLine(join + ";token=" + token)
	all := strings.Join(g.readUntilClosed(), "\n")
	require.NotContains(t, all, token)
	return withoutNumbers(all)
}

// locked is a buffer for several.
type locked struct {
	mu  *sync.Mutex
	buf *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// TestAnAgentWithoutAToken registers itself.
func TestAnAgentWithoutAToken(t *testing.T) {
	t.Parallel()
	runV5Case(t, "is registered under the name it proposes, and is on the line", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		for range 2 {
			g, _ := h.dialTCP(t)
			g.sendLine(join + ";name=ada")
			require.Contains(t, g.next(), "registered;id=W1")
			require.Equal(t, "ada", <-h.names)
			h.waitForWorker(t, "ada", online)
			h.submit(t, "ada")
			g.nextOfType("R")
			g.close()
			h.waitForWorker(t, "ada", offline)
		}
	})
	refusing := transport.TCPOptions{Enroll: func(context.Context, string) (string, error) {
		return "", errs.New(errs.InvalidRequest, "nobody of that name is wanted")
	}}
	runV5Case(t, "is told why where it cannot be", transport.Options{}, refusing, func(t *testing.T, h *v5Fixture) {
		g, _ := h.dialTCP(t)
		g.sendLine(join + ";name=ada")
		require.Equal(t, "O1>W1|E|T0|-|F|E10|0|S0|-|desc=nobody of that name is wanted", withoutNumbers(strings.Join(g.readUntilClosed(), "\n")))
	})
	runV5Case(t, "is off the line once it is deactivated", transport.Options{Heartbeat: testHeartbeat}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		g, _ := h.dialTCP(t)
		g.sendLine(join + ";name=ada")
		require.Contains(t, g.next(), "registered")
		h.waitForWorker(t, "ada", online) // who is not yet is told why he will not be
		h.deactivate(t, "ada")
		require.Empty(t, g.readUntilClosed())
	})
	runCase(t, "is refused where nobody registers it", nil, func(t *testing.T, h *fixture) {
		s := transport.NewTCPListener(h.transports, "127.0.0.1:0", nil)
		require.EqualError(t, s.Start(t.Context()), "no unframed protocol is configured")
		require.NoError(t, s.Stop(t.Context()), "it was never started")
	})
}

// TestALineOverTCP: what is a line, and how many of them are taken.
func TestALineOverTCP(t *testing.T) {
	t.Parallel()
	runV5Case(t, "may be empty, which is passed over, and end in CR LF", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		g, _ := h.dialTCP(t)
		g.sendLine("\n\r\n\n" + join + ";token=" + h.firstAgent(t, "ada") + "\r\n\n\r\n" + queryAgents + "\r\n\n")
		require.Contains(t, g.next(), "registered")
		require.Contains(t, g.next(), "agents=W1;count=1")
		h.waitForMetric(t, 2, "comet_transport_messages_total", "in", transport.TCP)
	})
	runV5Case(t, "of more than 64 KiB is refused, and the next one is taken", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		g := h.joinOver(t, transport.TCP, h.firstAgent(t, "ada"), "")
		head := "M2|W1>O1|U|T1|P1|R|-|0|S1|-|desc="
		most := head + strings.Repeat("x", 64<<10-len(head))
		g.sendLine(most)
		require.Contains(t, g.next(), "|F|E42|", "this one is not too long")
		for _, more := range []int{1, 2, 100, 64 << 10, 1 << 20} {
			g.sendLine(most + strings.Repeat("y", more))
			require.Contains(t, g.next(), "details=the line is longer than 65536 bytes")
			require.Empty(t, g.barrier())
		}
		g.sendLine(head + strings.Repeat("\r", 1<<17) + "more")
		require.Contains(t, g.next(), "details=the line is longer than 65536 bytes", "whatever its beginning ends with")
	})
	runV5Case(t, "may be the last, without a line break", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		g, conn := h.dialTCP(t)
		g.sendLine(join + ";token=" + token)
		require.Contains(t, g.next(), "registered")
		_, err := conn.Write([]byte(queryAgents))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		said := g.readUntilClosed()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "agents=W1;count=1")
		h.waitForWorker(t, "ada", offline)
	})
	runV5Case(t, "that is the last is answered, also one about a task", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		g, conn := h.dialTCP(t)
		g.sendLine(join + ";token=" + h.firstAgent(t, "ada"))
		require.Contains(t, g.next(), "registered")
		h.waitForWorker(t, "ada", online)
		h.submit(t, "ada")
		tid, session := g.nextOfType("R")
		_, err := fmt.Fprintf(conn, "M2|W1>O1|S|%s|-|D|-|0|%s|-|n=1", tid, session)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		said := g.readUntilClosed()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "|A|"+tid+"|")
	})
	runV5Case(t, "comes no faster than the pace, and none is lost", transport.Options{}, transport.TCPOptions{MaxMessageRate: 50}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		before := time.Now()
		g := h.joinOver(t, transport.TCP, token, "")
		const n = 60
		g.sendLine(strings.TrimSuffix(strings.Repeat(queryAgents+"\n", n), "\n"))
		for range n {
			require.Contains(t, g.next(), "count=1")
		}
		require.Greater(t, time.Since(before), 150*time.Millisecond, "the 11 that are over the pace take a fiftieth of a second each")
	})
	runV5Case(t, "has to come now and then", transport.Options{}, transport.TCPOptions{IdleTimeout: 50 * time.Millisecond}, func(t *testing.T, h *v5Fixture) {
		g, _ := h.dialTCP(t)
		g.sendLine(join + ";token=" + h.firstAgent(t, "ada"))
		said := g.readUntilClosed()
		require.Len(t, said, 1)
		require.Contains(t, said[0], "registered")
		h.waitForWorker(t, "ada", offline)
		h.waitForMetric(t, 0, "comet_transport_connections", transport.TCP)
	})
	runV5Case(t, "need not come for the connection to count as alive", transport.Options{Heartbeat: testHeartbeat}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		g := h.joinOver(t, transport.TCP, h.firstAgent(t, "ada"), "")
		h.waitHeartbeats(t, 5, func() {})
		require.True(t, online(h.CachedWorker("ada")))
		require.Empty(t, g.barrier())
	})
}

// TestAListener begins and ends.
func TestAListener(t *testing.T) {
	t.Parallel()
	runV5Case(t, "frees its port, and leaves the lines that there are", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		g := h.joinOver(t, transport.TCP, h.firstAgent(t, "ada"), "")
		require.NoError(t, h.listener.Stop(t.Context()))
		require.NoError(t, h.listener.Stop(t.Context()), "twice is fine")
		require.Empty(t, g.barrier())
		next := transport.NewTCPListener(h.transports, h.address, nil)
		require.NoError(t, next.Start(t.Context()))
		defer func() { require.NoError(t, next.Stop(context.Background())) }()
		again, _ := h.dialTCP(t)
		again.sendLine(join)
		require.Contains(t, strings.Join(again.readUntilClosed(), "\n"), "|E90|", "without a token, where nobody registers agents")
		require.NoError(t, h.transports.Stop(t.Context()))
		require.Empty(t, g.readUntilClosed())
	})
	runV5Case(t, "says which address is taken, and what to do", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		err := transport.NewTCPListener(h.transports, h.address, nil).Start(t.Context())
		require.ErrorContains(t, err, "listen on "+h.address)
		require.ErrorContains(t, err, "--v5-listen")
	})
	runV5Case(t, "takes hundreds at once, and forgets none", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		const n = 200
		now, parent, sphere, budget := h.db.Now(), "orch-my-team", 8, int64(50_000)
		require.NoError(t, h.db.Write(t.Context(), func(tx *store.Tx) error {
			var all []error
			for i := range n {
				id := fmt.Sprintf("agent-%d", i)
				all = append(all, tx.InsertAgent(models.Agent{
					ID: id, Name: id, Level: 2, SphereID: &sphere, FrequencyHz: 555, ParentID: &parent, TokenBudget: &budget,
					IsActive: true, Version: 1, CreatedAt: now, UpdatedAt: now,
				}))
			}
			return errors.Join(all...)
		}))
		var mu sync.Mutex
		numbers := map[string]bool{}
		var callers sync.WaitGroup
		ready, leave := make(chan error, n), make(chan struct{})
		for i := range n {
			g, _ := h.dialTCP(t)
			callers.Go(func() {
				err := g.send(fmt.Sprintf("%s;name=agent-%d", join, i))
				if err == nil {
					var text string
					text, err = g.read()
					mu.Lock()
					numbers[text[strings.Index(text, "id="):]] = true
					mu.Unlock()
				}
				ready <- err
				<-leave
				if i%2 == 0 { // the others are ended
					g.close()
				}
			})
		}
		for range n {
			require.NoError(t, <-ready)
		}
		require.Len(t, numbers, n, "each has a number of its own")
		h.waitForMetric(t, n, "comet_transport_connections", transport.TCP)
		close(leave)
		callers.Wait()
		h.waitForMetric(t, n/2, "comet_transport_connections", transport.TCP)
		require.NoError(t, h.transports.Stop(t.Context()))
		require.Zero(t, h.metric(t, "comet_transport_connections", transport.TCP))
	})
}

// accepts reports whether a connection was let in, and hears what it says.
func (h *v5Fixture) accepts(t *testing.T) bool {
	t.Helper()
	g, _ := h.dialTCP(t)
	_ = g.send("nonsense")
	text, err := g.read()
	return err == nil && strings.Contains(text, "|E10|")
}

// TestStrangersFromAfar do not keep others out.
func TestStrangersFromAfar(t *testing.T) {
	t.Parallel()
	runV5Case(t, "are eight of one address at most", transport.Options{}, allRemoteSlow(), func(t *testing.T, h *v5Fixture) {
		var silent []net.Conn
		for range 8 {
			_, conn := h.dialTCP(t)
			silent = append(silent, conn)
		}
		g, _ := h.dialTCP(t)
		require.Empty(t, g.readUntilClosed())
		require.NoError(t, silent[0].Close())
		require.Eventually(t, func() bool { return h.accepts(t) }, time.Minute, time.Millisecond, "there is room again")
	})
	few := allRemoteSlow()
	few.MaxUnauthenticated = 8
	few.IsLocal = func(from netip.Addr) bool { return from.String() == "127.0.0.1" }
	runV5Case(t, "leave a quarter of the room to this machine", transport.Options{}, few, func(t *testing.T, h *v5Fixture) {
		for i := range 6 { // of two addresses
			h.dialFrom(t, []string{"127.0.0.2", "127.0.0.3"}[i%2])
		}
		_, err := h.dialFrom(t, "127.0.0.4").Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.True(t, h.accepts(t))
	})
	runV5Case(t, "have less time", transport.Options{}, transport.TCPOptions{
		HandshakeTimeout: time.Hour, RemoteHandshakeTimeout: 30 * time.Millisecond, IsLocal: func(netip.Addr) bool { return false },
	}, func(t *testing.T, h *v5Fixture) {
		g, _ := h.dialTCP(t)
		require.Empty(t, g.readUntilClosed())
	})
}

// allRemoteSlow is a listener to which every address is another machine's, and which waits long.
func allRemoteSlow() transport.TCPOptions {
	out := allRemote()
	out.RemoteHandshakeTimeout = time.Hour
	return out
}
