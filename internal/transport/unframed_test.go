package transport_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	v5 "comet/internal/protocol/v5"
	"comet/internal/transport"
	"comet/models"
)

// TestAPlainLine (docs/adr/0016): its rules are those of every line, and there are no
// words but the messages.
func TestAPlainLine(t *testing.T) {
	t.Parallel()
	runV5Case(t, "hands nothing over before J", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		g := h.dialOver(t, transport.WebSocket, h.firstAgent(t, "ada"))
		h.enqueue(t, "ada", 1)
		require.Empty(t, g.barrier())
		g.sendLine("M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, g.next(), "|A|T0|", "before anything else")
		g.nextOfType("U")
		require.Equal(t, v5.Name, h.waitForWorker(t, "ada", online).Protocol)
	})
	runV5Transports(t, "hands over as much work as concurrency= says", transport.Options{}, func(t *testing.T, h *v5Fixture, way string) {
		token := h.firstAgent(t, "ada")
		wide := h.joinOver(t, way, token, ";concurrency=3")
		for range 3 {
			h.submit(t, "ada")
		}
		h.waitForInbox(t, "ada", 3)
		narrow := h.joinOver(t, way, token, ";concurrency=1")
		require.LessOrEqual(t, len(wide.readUntilClosed()), 3, "it is replaced")
		tid, session := narrow.nextOfType("R")
		h.enqueue(t, "ada", 1)
		narrow.nextOfType("U")
		require.Empty(t, narrow.barrier(), "work waits, and all else does not")
		narrow.sendLine("M2|W1>O1|A|" + tid + "|-|R|-|0|" + session + "|-|-")
		other, where := narrow.nextOfType("R")
		require.NotEqual(t, tid+session, other+where)
		require.Empty(t, narrow.barrier())
	})
	runV5Transports(t, "hands work over again on the next line until it was spoken of", transport.Options{}, func(t *testing.T, h *v5Fixture, way string) {
		token := h.firstAgent(t, "ada")
		g := h.joinOver(t, way, token, "")
		h.submit(t, "ada")
		before := g.next()
		g.sendLine(heartbeatLine)
		require.Empty(t, g.barrier())
		h.waitForInbox(t, "ada", 1)
		g.close()
		h.waitForWorker(t, "ada", offline)
		g = h.joinOver(t, way, token, "")
		again := g.next()
		require.Equal(t, before[strings.Index(before, "|"):], again[strings.Index(again, "|"):], "but for its number")
		segments := strings.Split(again, "|")
		g.sendLine("M2|W1>O1|U|" + segments[3] + "|-|R|-|0|" + segments[8] + "|-|progress=10%")
		h.waitForInbox(t, "ada", 0)
		g.close()
		h.waitForWorker(t, "ada", offline)
		g = h.joinOver(t, way, token, "")
		require.Empty(t, g.barrier())
	})
	runV5Transports(t, "takes for received what is no work once anything was said after it", transport.Options{}, func(t *testing.T, h *v5Fixture, way string) {
		g := h.joinOver(t, way, h.firstAgent(t, "ada"), "")
		for _, what := range []string{heartbeatLine, queryAgents, "nonsense", "M9|W1>O1|S|T5|-|D|-|0|S9|-|-"} {
			h.enqueue(t, "ada", 2)
			g.nextOfType("U")
			g.nextOfType("U")
			h.waitForInbox(t, "ada", 2)
			g.sendLine(what)
			h.waitForInbox(t, "ada", 0)
			if what != heartbeatLine { // which is not answered
				g.next()
			}
		}
	})
	runV5Transports(t, "is cut off where its agent does not read", transport.Options{WriteTimeout: 200 * time.Millisecond}, func(t *testing.T, h *v5Fixture, way string) {
		h.protocol.padding = 32 << 20
		g := h.joinOver(t, way, h.firstAgent(t, "ada"), "")
		h.enqueue(t, "ada", 1)
		h.waitForWorker(t, "ada", offline)
		h.waitForMetric(t, 0, "comet_transport_connections", way)
		text, err := g.read()
		require.Error(t, err, "the line is over, and what was written of it is no message")
		require.NotErrorIs(t, err, os.ErrDeadlineExceeded)
		require.Less(t, len(text), 32<<20)
		h.waitForInbox(t, "ada", 1)
	})
	runV5Transports(t, "stays when its agent says L, and gives no work until J", transport.Options{Heartbeat: testHeartbeat}, func(t *testing.T, h *v5Fixture, way string) {
		g := h.joinOver(t, way, h.firstAgent(t, "ada"), "")
		g.sendLine("M2|W1>O1|L|T0|-|-|-|0|S0|-|reason=lunch")
		require.Contains(t, g.next(), "|A|T0|-|-|-|0|S0|-|left")
		require.True(t, offline(h.CachedWorker("ada")))
		h.waitHeartbeats(t, 2, func() { require.Empty(t, g.barrier()) })
		task := h.submit(t, "ada")
		require.Empty(t, g.barrier())
		require.True(t, offline(h.CachedWorker("ada")))
		now, err := h.Task(t.Context(), task.ID)
		require.NoError(t, err)
		require.Equal(t, models.TaskNew, now.State)
		g.sendLine("M3|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, g.next(), "|A|T0|")
		h.waitForWorker(t, "ada", online)
		h.db.Clock.Advance(2 * time.Second) // when it is tried again
		g.nextOfType("R")
	})
	runV5Transports(t, "ends when its token is revoked", transport.Options{Heartbeat: testHeartbeat}, func(t *testing.T, h *v5Fixture, way string) {
		h.firstAgent(t, "ada")
		issued := h.token(t, "ada")
		g := h.joinOver(t, way, issued.Secret, "")
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		require.Empty(t, g.readUntilClosed())
		h.waitForWorker(t, "ada", offline)
	})
	runV5Case(t, "ends when its token is revoked, also before J", transport.Options{Heartbeat: testHeartbeat}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		h.firstAgent(t, "ada")
		issued := h.token(t, "ada")
		g := h.dialOver(t, transport.WebSocket, issued.Secret)
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		require.Empty(t, g.readUntilClosed())
	})
	runV5Transports(t, "says why to an agent whose token was revoked and who says something", transport.Options{Heartbeat: time.Hour}, func(t *testing.T, h *v5Fixture, way string) {
		h.firstAgent(t, "ada")
		issued := h.token(t, "ada")
		g := h.joinOver(t, way, issued.Secret, "")
		require.NoError(t, h.auth.Revoke(t.Context(), ops(), issued.Token.ID))
		g.sendLine(queryAgents)
		said := g.readUntilClosed()
		require.Len(t, said, 1)
		require.Equal(t, refusedToken, withoutNumbers(said[0]))
	})
	runV5Transports(t, "ends when the server stops", transport.Options{}, func(t *testing.T, h *v5Fixture, way string) {
		g := h.joinOver(t, way, h.firstAgent(t, "ada"), "")
		h.transports.Drain()
		require.Empty(t, g.readUntilClosed())
		h.waitForMetric(t, 0, "comet_transport_connections", way)
	})
	runV5Case(t, "replaces the older one, whichever way either is", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		var before *v5Client
		for _, way := range []string{transport.TCP, transport.WebSocket, transport.TCP, transport.TCP} {
			g := h.joinOver(t, way, token, "")
			if before != nil {
				require.Empty(t, before.readUntilClosed())
			}
			h.waitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.Transport == way })
			before = g
		}
		require.Empty(t, before.barrier())
	})
	runV5Case(t, "takes one J after the other, whatever task they name", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		g := h.dialOver(t, transport.WebSocket, h.firstAgent(t, "ada"))
		const n = 20
		for i := range n {
			g.sendLine(fmt.Sprintf("M%d|W1>O1|J|T%d|-|-|-|0|S1|-|concurrency=%d", i+1, i+1, i+2))
		}
		for i := range n {
			require.Contains(t, g.next(), fmt.Sprintf("|A|T%d|-|D|-|0|S1|-|registered;id=W1", i+1))
		}
		require.Equal(t, 2, h.waitForWorker(t, "ada", online).Concurrency, "the window is that of the first")
	})
}
