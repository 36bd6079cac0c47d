package transport_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/protocol/v5"
	"comet/internal/testkit"
	"comet/internal/transport"
	"comet/models"
)

// TestUnframedConnection (docs/adr/0016): the rules of every connection hold, without control
// frames.
func TestUnframedConnection(t *testing.T) {
	t.Parallel()
	runV5Case(t, "delivers nothing before J", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		c := f.dialOver(t, transport.WebSocket, f.firstAgent(t, "ada"))
		f.enqueue(t, "ada", 1)
		require.Empty(t, c.barrier())
		c.sendLine("M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, c.next(), "|A|T0|", "the reply comes first")
		c.nextOfType("U")
		require.Equal(t, v5.Name, f.WaitForWorker(t, "ada", online).Protocol)
	})
	runV5Transports(t, "delivers as many tasks as concurrency= says", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		token := f.firstAgent(t, "ada")
		wide := f.joinOver(t, via, token, ";concurrency=3")
		for range 3 {
			f.submit(t, "ada")
		}
		f.WaitForInbox(t, "ada", 3)
		narrow := f.joinOver(t, via, token, ";concurrency=1")
		require.LessOrEqual(t, len(wide.readUntilClosed()), 3, "the older connection is replaced")
		tid, session := narrow.nextOfType("R")
		f.enqueue(t, "ada", 1)
		narrow.nextOfType("U")
		require.Empty(t, narrow.barrier(), "only tasks wait")
		narrow.sendLine("M2|W1>O1|A|" + tid + "|-|R|-|0|" + session + "|-|-")
		other, where := narrow.nextOfType("R")
		require.NotEqual(t, tid+session, other+where)
		require.Empty(t, narrow.barrier())
	})
	runV5Transports(t, "delivers a task again until the agent has answered it", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		token := f.firstAgent(t, "ada")
		c := f.joinOver(t, via, token, "")
		f.submit(t, "ada")
		before := c.next()
		c.sendLine(heartbeatLine)
		require.Empty(t, c.barrier())
		f.WaitForInbox(t, "ada", 1)
		c.close()
		f.WaitForWorker(t, "ada", offline)
		c = f.joinOver(t, via, token, "")
		again := c.next()
		require.Equal(t, before[strings.Index(before, "|"):], again[strings.Index(again, "|"):], "the same message except for its number")
		segments := strings.Split(again, "|")
		c.sendLine("M2|W1>O1|U|" + segments[3] + "|-|R|-|0|" + segments[8] + "|-|progress=10%")
		f.WaitForInbox(t, "ada", 0)
		c.close()
		f.WaitForWorker(t, "ada", offline)
		c = f.joinOver(t, via, token, "")
		require.Empty(t, c.barrier())
	})
	runV5Transports(t, "any message acknowledges earlier notices", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		c := f.joinOver(t, via, f.firstAgent(t, "ada"), "")
		for _, what := range []string{heartbeatLine, queryAgents, "nonsense", "M9|W1>O1|S|T5|-|D|-|0|S9|-|-"} {
			f.enqueue(t, "ada", 2)
			c.nextOfType("U")
			c.nextOfType("U")
			f.WaitForInbox(t, "ada", 2)
			c.sendLine(what)
			f.WaitForInbox(t, "ada", 0)
			if what != heartbeatLine { // it gets no reply
				c.next()
			}
		}
	})
	runV5Transports(t, "ends when the agent does not read", transport.Options{WriteTimeout: 200 * time.Millisecond}, func(t *testing.T, f *v5Fixture, via string) {
		f.protocol.padding = 32 << 20
		c := f.joinOver(t, via, f.firstAgent(t, "ada"), "")
		f.enqueue(t, "ada", 1)
		f.WaitForWorker(t, "ada", offline)
		f.waitForMetric(t, 0, "comet_transport_connections", via)
		text, err := c.read()
		require.Error(t, err, "the connection ended within a message")
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Less(t, len(text), 32<<20)
		f.WaitForInbox(t, "ada", 1)
	})
	runV5Transports(t, "stays open after L and delivers no tasks until J", transport.Options{Heartbeat: testHeartbeat}, func(t *testing.T, f *v5Fixture, via string) {
		c := f.joinOver(t, via, f.firstAgent(t, "ada"), "")
		c.sendLine("M2|W1>O1|L|T0|-|-|-|0|S0|-|reason=lunch")
		require.Contains(t, c.next(), "|A|T0|-|-|-|0|S0|-|left")
		require.True(t, offline(f.CachedWorker("ada")))
		f.waitHeartbeats(t, 2, func() { require.Empty(t, c.barrier()) })
		task := f.submit(t, "ada")
		require.Empty(t, c.barrier())
		require.True(t, offline(f.CachedWorker("ada")))
		now, err := f.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskNew, now.State)
		c.sendLine("M3|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, c.next(), "|A|T0|")
		f.WaitForWorker(t, "ada", online)
		f.DB.Clock.Advance(2 * time.Second) // when it is retried
		c.nextOfType("R")
	})
	runV5Transports(t, "ends when its token is revoked", transport.Options{Heartbeat: testHeartbeat}, func(t *testing.T, f *v5Fixture, via string) {
		f.firstAgent(t, "ada")
		issued := f.token(t, "ada")
		c := f.joinOver(t, via, issued.Secret, "")
		require.NoError(t, f.auth.Revoke(t.Context(), testkit.Admin(), issued.Token.ID, nil))
		require.Empty(t, c.readUntilClosed())
		f.WaitForWorker(t, "ada", offline)
	})
	runV5Case(t, "ends when its token is revoked before J", transport.Options{Heartbeat: testHeartbeat}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		f.firstAgent(t, "ada")
		issued := f.token(t, "ada")
		c := f.dialOver(t, transport.WebSocket, issued.Secret)
		require.NoError(t, f.auth.Revoke(t.Context(), testkit.Admin(), issued.Token.ID, nil))
		require.Empty(t, c.readUntilClosed())
	})
	runV5Transports(t, "refuses a message after its token is revoked", transport.Options{Heartbeat: time.Hour}, func(t *testing.T, f *v5Fixture, via string) {
		f.firstAgent(t, "ada")
		issued := f.token(t, "ada")
		c := f.joinOver(t, via, issued.Secret, "")
		require.NoError(t, f.auth.Revoke(t.Context(), testkit.Admin(), issued.Token.ID, nil))
		c.sendLine(queryAgents)
		got := c.readUntilClosed()
		require.Len(t, got, 1)
		require.Equal(t, refusedToken, withoutNumbers(got[0]))
	})
	runV5Transports(t, "ends when the server drains", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		c := f.joinOver(t, via, f.firstAgent(t, "ada"), "")
		f.transports.Drain()
		require.Empty(t, c.readUntilClosed())
		f.waitForMetric(t, 0, "comet_transport_connections", via)
	})
	runV5Case(t, "replaces the older connection over any transport", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		var before *v5Client
		for _, via := range []string{transport.TCP, transport.WebSocket, transport.TCP, transport.TCP} {
			c := f.joinOver(t, via, token, "")
			if before != nil {
				require.Empty(t, before.readUntilClosed())
			}
			f.WaitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.Transport == via })
			before = c
		}
		require.Empty(t, before.barrier())
	})
	runV5Case(t, "processes J messages in order whatever task they name", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		c := f.dialOver(t, transport.WebSocket, f.firstAgent(t, "ada"))
		const n = 20
		for i := range n {
			c.sendLine(fmt.Sprintf("M%d|W1>O1|J|T%d|-|-|-|0|S1|-|concurrency=%d", i+1, i+1, i+2))
		}
		for i := range n {
			require.Contains(t, c.next(), fmt.Sprintf("|A|T%d|-|D|-|0|S1|-|registered;id=W1", i+1))
		}
		require.Equal(t, 2, f.WaitForWorker(t, "ada", online).Concurrency, "the concurrency is that of the first J")
	})
}
