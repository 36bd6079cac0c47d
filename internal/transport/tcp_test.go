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
	"comet/internal/httpkit"
	"comet/internal/transport"
	"comet/models"
	"comet/store"
)

const join = "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5"

// TestTCPHandshake: a connection before its agent is known.
func TestTCPHandshake(t *testing.T) {
	t.Parallel()
	quick := transport.TCPOptions{HandshakeTimeout: 30 * time.Millisecond}
	runV5Case(t, "requires J as the first line", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		for _, first := range []string{queryAgents, "M1|User>O1|R|-|-|-|-|0|-|-|call=web_search", "M1|User>O1|J|T0|-|-|-|0|S0|-|-"} {
			c, _ := f.dialTCP(t)
			c.sendLine(first)
			got := c.readUntilClosed()
			require.Len(t, got, 1)
			require.Contains(t, got[0], "|F|E13|", first)
			require.Contains(t, got[0], "first message must be a worker's J")
		}
		c, _ := f.dialTCP(t)
		c.sendLine("GET / HTTP/1.1\r")
		got := c.readUntilClosed()
		require.Len(t, got, 1)
		require.Equal(t, `O1>User|E|-|-|F|E10|0|-|-|desc=invalid message format;details=the message has 1 segment, not 11, or 8 in V4`, withoutNumbers(got[0]))
		f.waitForMetric(t, 0, "comet_transport_connections", transport.TCP)
		require.Empty(t, f.names, "no agent is enrolled")
	})
	runV5Case(t, "closes a silent connection", transport.Options{}, quick, func(t *testing.T, f *v5Fixture) {
		c, _ := f.dialTCP(t)
		require.Empty(t, c.readUntilClosed())
	})
	runV5Case(t, "empty lines do not extend the timeout", transport.Options{}, quick, func(t *testing.T, f *v5Fixture) {
		c, _ := f.dialTCP(t)
		var err error
		for err == nil {
			err = c.send("")
		}
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
	})
	runV5Case(t, "limits the unidentified connections", transport.Options{}, transport.TCPOptions{MaxUnauthenticated: 1}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		silent, _ := f.dialTCP(t)
		one, _ := f.dialTCP(t)
		require.Empty(t, silent.readUntilClosed(), "the newer connection ends the silent one")
		one.sendLine(join + ";token=" + token)
		require.Contains(t, one.next(), "registered")
		require.Equal(t, models.WorkerOnline, f.CachedWorker("ada").State, "the agent has joined before the reply")
		require.Eventually(t, func() bool { // the first connection is identified now
			three, _ := f.dialTCP(t)
			_ = three.send("nonsense")
			text, err := three.read()
			return err == nil && strings.Contains(text, "|E10|")
		}, time.Minute, 5*time.Millisecond)
	})
	runV5Case(t, "refuses with E30 at the connection limit", transport.Options{MaxConnections: 1}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.joinOver(t, transport.TCP, f.firstAgent(t, "ada"), "")
		c, _ := f.dialTCP(t)
		c.sendLine(join + ";token=" + f.agent(t, "bob"))
		got := c.readUntilClosed()
		require.Len(t, got, 1)
		require.Contains(t, got[0], "|F|E30|")
	})
	runV5Case(t, "ends when the listener stops", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		c, _ := f.dialTCP(t)
		require.NoError(t, f.listener.Stop(t.Context()))
		require.Empty(t, c.readUntilClosed())
	})
}

// TestTCPToken (decisions: “Who is speaking”).
func TestTCPToken(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	var mu sync.Mutex
	logger := slog.New(slog.NewTextHandler(locked{&mu, &log}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	runV5Case(t, "identifies the agent and is not logged", transport.Options{Logger: logger}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		c, _ := f.dialTCP(t)
		c.sendLine("M1|W1>O1|J|T0|-|-|-|0|S0|-|token=" + token + ";caps=custom:ada;concurrency=2")
		got := c.next()
		require.Contains(t, got, "registered;id=W1")
		require.True(t, f.protocol.received("M1|W1>O1|J|T0|-|-|-|0|S0|-|caps=custom:ada;concurrency=2"), "%q", f.protocol.lines)
		w := f.WaitForWorker(t, "ada", online)
		require.Equal(t, []any{transport.TCP, 2}, []any{w.Transport, w.Concurrency})
		require.NotContains(t, got, token)
		require.NotContains(t, strings.Join(f.protocol.lines, "\n"), token)
		mu.Lock()
		defer mu.Unlock()
		require.NotContains(t, log.String(), token)
		require.Empty(t, f.names, "no agent is enrolled")
	})
	runV5Case(t, "a wrong one is refused, counted and logged but not echoed", transport.Options{Limits: httpkit.NewLimits(&httpkit.LimitOptions{MaxFailures: 3}), Logger: logger}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		known := f.firstAgent(t, "ada")
		f.joinOver(t, transport.TCP, known, "")
		for i := range 3 {
			require.Equal(t, refusedToken, f.turnedAway(t, fmt.Sprintf("sesame-%d", i)))
			f.waitForMetric(t, i+1, "comet_transport_authentication_failures_total")
		}
		mu.Lock()
		require.Contains(t, log.String(), "a connection was refused")
		require.NotContains(t, log.String(), "sesame-")
		mu.Unlock()
		require.Equal(t, refusedToken, f.turnedAway(t, "sesame-3"), "this address is throttled")
		f.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
		f.joinOver(t, transport.TCP, known, "") // it was accepted before
		require.Equal(t, 429, f.do(t, "GET", "/api/agent/inbox", "sesame", "").StatusCode, "over HTTP too")
		f.waitForMetric(t, 3, "comet_transport_authentication_failures_total")
	})
	runV5Case(t, "one bound to no agent is refused", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		require.Equal(t, refusedToken, f.turnedAway(t, f.token(t, "", models.ScopeAdmin).Secret))
	})
	runV5Case(t, "that of a deactivated agent is refused", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		f.deactivate(t, "ada")
		require.Equal(t, refusedToken, f.turnedAway(t, token))
	})
	runV5Case(t, "a truncated one enrolls no agent", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		c, _ := f.dialTCP(t)
		c.sendLine("M1|W1>O1|J|T0|-|-|-|0|S0|-|desc=" + strings.Repeat("x", 200) + ";token=" + token)
		require.Contains(t, strings.Join(c.readUntilClosed(), "\n"), "|F|E10|0|S0|-|desc=")
		require.Empty(t, f.names)
		c, _ = f.dialTCP(t)
		c.sendLine("M1|W1>O1|J|T0|-|-|-|0|S0|-|token=" + token + ";desc=" + strings.Repeat("x", 200))
		require.Contains(t, c.next(), "registered;id=W1", "a token earlier in the line is found")
	})
	runV5Case(t, "is not echoed in the refusal of a malformed J", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
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
			c, _ := f.dialTCP(t)
			c.sendLine(line)
			got := c.next()
			require.Contains(t, got, "|E|")
			require.NotContains(t, got, token[:8])
			c.close()
		}
	})
}

// refusedToken is the complete reply to a rejected token.
const refusedToken = "O1>W1|E|T0|-|F|E90|0|S0|-|reason=token;desc=the token is not accepted"

// joinRefusal sends J with a token and returns the complete reply.
func (f *v5Fixture) turnedAway(t *testing.T, token string) string {
	t.Helper()
	c, _ := f.dialTCP(t)
	c.sendLine(join + ";token=" + token)
	all := strings.Join(c.readUntilClosed(), "\n")
	require.NotContains(t, all, token)
	return withoutNumbers(all)
}

// lockedWriter serializes writes to a buffer.
type locked struct {
	mu  *sync.Mutex
	buf *bytes.Buffer
}

func (l locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// TestTCPEnrollment: an agent without a token enrolls itself.
func TestTCPEnrollment(t *testing.T) {
	t.Parallel()
	runV5Case(t, "registers the agent under the proposed name and connects it", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		for range 2 {
			c, _ := f.dialTCP(t)
			c.sendLine(join + ";name=ada")
			require.Contains(t, c.next(), "registered;id=W1")
			require.Equal(t, "ada", <-f.names)
			f.WaitForWorker(t, "ada", online)
			f.submit(t, "ada")
			c.nextOfType("R")
			c.close()
			f.WaitForWorker(t, "ada", offline)
		}
	})
	refusing := transport.TCPOptions{Enroll: func(context.Context, string, bool) (string, error) {
		return "", errs.New(errs.InvalidRequest, "the name is not permitted")
	}}
	runV5Case(t, "reports why enrollment failed", transport.Options{}, refusing, func(t *testing.T, f *v5Fixture) {
		c, _ := f.dialTCP(t)
		c.sendLine(join + ";name=ada")
		require.Equal(t, "O1>W1|E|T0|-|F|E10|0|S0|-|desc=the name is not permitted", withoutNumbers(strings.Join(c.readUntilClosed(), "\n")))
	})
	runV5Case(t, "disconnects a deactivated agent", transport.Options{Heartbeat: testHeartbeat}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		c, _ := f.dialTCP(t)
		c.sendLine(join + ";name=ada")
		require.Contains(t, c.next(), "registered")
		f.WaitForWorker(t, "ada", online) // otherwise it would be told that it cannot join
		f.deactivate(t, "ada")
		require.Empty(t, c.readUntilClosed())
	})
}

// TestTCPLines: how lines are read, and how fast.
func TestTCPLines(t *testing.T) {
	t.Parallel()
	runV5Case(t, "ignores empty lines and accepts CR LF", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		c, _ := f.dialTCP(t)
		c.sendLine("\n\r\n\n" + join + ";token=" + f.firstAgent(t, "ada") + "\r\n\n\r\n" + queryAgents + "\r\n\n")
		require.Contains(t, c.next(), "registered")
		require.Contains(t, c.next(), "agents=W1;count=1")
		f.waitForMetric(t, 2, "comet_transport_messages_total", "in", transport.TCP)
	})
	runV5Case(t, "refuses a line over 64 KiB and reads the next one", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		c := f.joinOver(t, transport.TCP, f.firstAgent(t, "ada"), "")
		head := "M2|W1>O1|U|T1|P1|R|-|0|S1|-|desc="
		most := head + strings.Repeat("x", 64<<10-len(head))
		c.sendLine(most)
		require.Contains(t, c.next(), "|F|E42|", "this line is within the limit")
		for _, more := range []int{1, 2, 100, 64 << 10, 1 << 20} {
			c.sendLine(most + strings.Repeat("y", more))
			require.Contains(t, c.next(), "details=the message is longer than 65536 bytes")
			require.Empty(t, c.barrier())
		}
		c.sendLine(head + strings.Repeat("\r", 1<<17) + "more")
		require.Contains(t, c.next(), "details=the message is longer than 65536 bytes", "carriage returns count too")
	})
	runV5Case(t, "accepts a last line without a line break", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		c, conn := f.dialTCP(t)
		c.sendLine(join + ";token=" + token)
		require.Contains(t, c.next(), "registered")
		_, err := conn.Write([]byte(queryAgents))
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		got := c.readUntilClosed()
		require.Len(t, got, 1)
		require.Contains(t, got[0], "agents=W1;count=1")
		f.WaitForWorker(t, "ada", offline)
	})
	runV5Case(t, "replies to a last line about a task", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		c, conn := f.dialTCP(t)
		c.sendLine(join + ";token=" + f.firstAgent(t, "ada"))
		require.Contains(t, c.next(), "registered")
		f.WaitForWorker(t, "ada", online)
		f.submit(t, "ada")
		tid, session := c.nextOfType("R")
		_, err := fmt.Fprintf(conn, "M2|W1>O1|S|%s|-|D|-|0|%s|-|n=1", tid, session)
		require.NoError(t, err)
		require.NoError(t, conn.(*net.TCPConn).CloseWrite())
		got := c.readUntilClosed()
		require.Len(t, got, 1)
		require.Contains(t, got[0], "|A|"+tid+"|")
	})
	runV5Case(t, "limits the rate without losing lines", transport.Options{}, transport.TCPOptions{MaxMessageRate: 50}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		before := time.Now()
		c := f.joinOver(t, transport.TCP, token, "")
		const n = 60
		c.sendLine(strings.TrimSuffix(strings.Repeat(queryAgents+"\n", n), "\n"))
		for range n {
			require.Contains(t, c.next(), "count=1")
		}
		require.Greater(t, time.Since(before), 150*time.Millisecond, "the 11 lines over the rate take a fiftieth of a second each")
	})
	runV5Case(t, "ends an idle connection", transport.Options{}, transport.TCPOptions{IdleTimeout: 50 * time.Millisecond}, func(t *testing.T, f *v5Fixture) {
		c, _ := f.dialTCP(t)
		c.sendLine(join + ";token=" + f.firstAgent(t, "ada"))
		got := c.readUntilClosed()
		require.Len(t, got, 1)
		require.Contains(t, got[0], "registered")
		f.WaitForWorker(t, "ada", offline)
		f.waitForMetric(t, 0, "comet_transport_connections", transport.TCP)
	})
	runV5Case(t, "keeps a silent agent online", transport.Options{Heartbeat: testHeartbeat}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		c := f.joinOver(t, transport.TCP, f.firstAgent(t, "ada"), "")
		f.waitHeartbeats(t, 5, func() {})
		require.True(t, online(f.CachedWorker("ada")))
		require.Empty(t, c.barrier())
	})
}

func TestTCPListener(t *testing.T) {
	t.Parallel()
	runV5Case(t, "releases its port and keeps open connections", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		c := f.joinOver(t, transport.TCP, f.firstAgent(t, "ada"), "")
		require.NoError(t, f.listener.Stop(t.Context()))
		require.NoError(t, f.listener.Stop(t.Context()), "twice is fine")
		require.Empty(t, c.barrier())
		next := transport.NewTCPListener(f.transports, f.address, nil)
		require.NoError(t, next.Start(t.Context()))
		defer func() { require.NoError(t, next.Stop(context.Background())) }()
		again, _ := f.dialTCP(t)
		again.sendLine(join)
		require.Contains(t, strings.Join(again.readUntilClosed(), "\n"), "|E90|", "without a token and without Enroll")
		require.NoError(t, f.transports.Stop(t.Context()))
		require.Empty(t, c.readUntilClosed())
	})
	runV5Case(t, "names an address that is in use", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		err := transport.NewTCPListener(f.transports, f.address, &transport.TCPOptions{Setting: "--tcp-listen"}).Start(t.Context())
		require.ErrorContains(t, err, "listen tcp "+f.address)
		require.ErrorContains(t, err, "--tcp-listen")
	})
	runV5Case(t, "accepts hundreds of connections at the same time", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		const n = 200
		now, parent, sphere, budget := f.DB.Now(), "orch-my-team", 8, int64(50_000)
		require.NoError(t, f.DB.Write(t.Context(), func(tx *store.Tx) error {
			var all []error
			for i := range n {
				id := fmt.Sprintf("agent-%d", i)
				all = append(all, tx.Agents().Insert(models.Agent{
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
			c, _ := f.dialTCP(t)
			callers.Go(func() {
				err := c.send(fmt.Sprintf("%s;name=agent-%d", join, i))
				if err == nil {
					var text string
					text, err = c.read()
					mu.Lock()
					numbers[text[strings.Index(text, "id="):]] = true
					mu.Unlock()
				}
				ready <- err
				<-leave
				if i%2 == 0 { // the server closes the other half
					c.close()
				}
			})
		}
		for range n {
			require.NoError(t, <-ready)
		}
		require.Len(t, numbers, n, "each agent has a number of its own")
		f.waitForMetric(t, n, "comet_transport_connections", transport.TCP)
		close(leave)
		callers.Wait()
		f.waitForMetric(t, n/2, "comet_transport_connections", transport.TCP)
		require.NoError(t, f.transports.Stop(t.Context()))
		require.Zero(t, f.metric(t, "comet_transport_connections", transport.TCP))
	})
}

// accepts reports whether a new connection gets a reply.
func (f *v5Fixture) accepts(t *testing.T) bool {
	t.Helper()
	c, _ := f.dialTCP(t)
	_ = c.send("nonsense")
	text, err := c.read()
	return err == nil && strings.Contains(text, "|E10|")
}

// TestRemoteHandshakeLimits: unidentified remote connections leave capacity for others.
func TestRemoteHandshakeLimits(t *testing.T) {
	t.Parallel()
	runV5Case(t, "allows eight connections of one address", transport.Options{}, allRemoteSlow(), func(t *testing.T, f *v5Fixture) {
		var silent []net.Conn
		for range 8 {
			_, conn := f.dialTCP(t)
			silent = append(silent, conn)
		}
		c, _ := f.dialTCP(t)
		require.Empty(t, c.readUntilClosed())
		require.NoError(t, silent[0].Close())
		require.Eventually(t, func() bool { return f.accepts(t) }, time.Minute, 5*time.Millisecond, "a connection is free again")
	})
	few := allRemoteSlow()
	few.MaxUnauthenticated = 8
	few.IsLocal = func(from netip.Addr) bool { return from.String() == "127.0.0.1" }
	runV5Case(t, "reserves a quarter of the connections for this machine", transport.Options{}, few, func(t *testing.T, f *v5Fixture) {
		for i := range 6 { // from two addresses
			f.dialFrom(t, []string{"127.0.0.2", "127.0.0.3"}[i%2])
		}
		_, err := f.dialFrom(t, "127.0.0.4").Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		require.True(t, f.accepts(t))
	})
	runV5Case(t, "use a shorter timeout", transport.Options{}, transport.TCPOptions{
		HandshakeTimeout: time.Hour, RemoteHandshakeTimeout: 30 * time.Millisecond, IsLocal: func(netip.Addr) bool { return false },
	}, func(t *testing.T, f *v5Fixture) {
		c, _ := f.dialTCP(t)
		require.Empty(t, c.readUntilClosed())
	})
}

// allRemoteSlow returns options that treat every address as another machine, with a long handshake
// timeout.
func allRemoteSlow() transport.TCPOptions {
	out := allRemote()
	out.RemoteHandshakeTimeout = time.Hour
	return out
}
