package transport_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/transport"
	"comet/models"
)

// joinV4Over opens a line of ada's, who speaks V4 from then on.
func (h *v5Fixture) joinV4Over(t *testing.T, way, token, data string) *v5Client {
	t.Helper()
	g, before := h.dialOver(t, way, token), h.CachedWorker("ada").ConnectionID
	joinV4 := "M0|W1>O1|J|T0|-|-|-|0|-|-|version=V4" + data
	if way == transport.TCP {
		joinV4 += ";token=" + token
	}
	g.sendLine(joinV4)
	require.Equal(t, "O1>W1|A|T0|-|D|-|0|-|-|registered;id=W1;status=active;version=V4;mode=compat", withoutNumbers(g.next()))
	h.waitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before && w.ProtocolVersion == "V4" })
	return g
}

// TestALineOfAWorkerOfV4 (PROTOCOL_V5 §1.2, §14.3): nothing on it has more than eight
// segments, whoever asks for the work.
func TestALineOfAWorkerOfV4(t *testing.T) {
	t.Parallel()
	runV5Transports(t, "gives it one task at a time, in V4", transport.Options{}, func(t *testing.T, h *v5Fixture, way string) {
		g := h.joinV4Over(t, way, h.firstAgent(t, "ada"), ";concurrency=9")
		one := h.submit(t, "ada")
		first := g.next()
		require.Regexp(t, `^M\d+\|O1>W1\|R\|T1\|P\d\|N\|-\|`, first)
		require.Equal(t, 7, strings.Count(first, "|"))
		two := h.submit(t, "ada")
		h.enqueue(t, "ada", 1)
		said := g.next()
		require.Contains(t, said, "|U|", "what is no work does not wait")
		require.Equal(t, 7, strings.Count(said, "|"))
		g.sendLine("M1|W1>O1|U|T1|-|R|-|progress=50%")
		g.sendLine("M2|W1>O1|S|T1|-|D|-|done")
		g.sendLine("M2|W1>O1|S|T1|-|D|-|done") // once more
		var told []string
		for len(told) < 3 { // the next task comes beside the answers, in any order
			text := g.next()
			require.Equal(t, 7, strings.Count(text, "|"), text)
			told = append(told, strings.Split(withoutNumbers(text), "|")[1])
		}
		require.ElementsMatch(t, []string{"A", "A", "R"}, told)
		for id, want := range map[string]models.TaskState{one.ID: models.TaskDone, two.ID: models.TaskNew} {
			task, err := h.Task(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, task.State)
		}
	})
	runV5Transports(t, "knows it again on the next one, which may be of V5", transport.Options{}, func(t *testing.T, h *v5Fixture, way string) {
		token := h.firstAgent(t, "ada")
		g := h.joinV4Over(t, way, token, "")
		h.submit(t, "ada")
		before := g.next()
		g.close()
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return offline(w) && w.ProtocolVersion == "V4" })
		g = h.joinV4Over(t, way, token, "")
		again := g.next()
		require.Equal(t, withoutNumbers(before), withoutNumbers(again))
		g.close()
		h.waitForWorker(t, "ada", offline)
		g = h.joinOver(t, way, token, "")
		require.Equal(t, 10, strings.Count(g.next(), "|"))
		require.Empty(t, h.waitForWorker(t, "ada", online).ProtocolVersion)
	})
	runV5Transports(t, "takes another J, with another version", transport.Options{}, func(t *testing.T, h *v5Fixture, way string) {
		g := h.joinOver(t, way, h.firstAgent(t, "ada"), ";concurrency=3")
		g.sendLine("M2|W1>O1|J|T0|-|-|-|0|S0|-|version=V4")
		require.Contains(t, g.next(), "|0|S0|-|registered;id=W1;status=active;version=V4;mode=compat")
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return w.ProtocolVersion == "V4" && w.Concurrency == 1 })
		g.sendLine("M3|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W*")
		require.Equal(t, "O1>W1|S|T0|-|D|-|agents=W1;count=1", withoutNumbers(g.next()))
		g.sendLine("M4|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, g.next(), "version=V5")
		h.waitForWorker(t, "ada", func(w models.Worker) bool { return w.ProtocolVersion == "" && w.Concurrency == 3 })
	})
	runV5Case(t, "does not begin with eight segments over TCP", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		g, _ := h.dialTCP(t)
		g.sendLine("M1|W1>O1|J|T0|-|-|-|version=V4;token=" + token)
		require.Equal(t, []string{"O1>W1|E|T0|-|F|E14|desc=unknown message type;details=TYPE: V4 has no type J"}, strings.Split(withoutNumbers(strings.Join(g.readUntilClosed(), "\n")), "\n"))
		g, _ = h.dialTCP(t)
		g.sendLine("M1|W1>O1|H|T0|-|-|-|load=1%")
		require.Contains(t, g.readUntilClosed()[0], "|E|T0|-|F|E13|reason=from;desc=")
		require.Empty(t, h.names, "nobody is registered")
	})
}

// TestLinesOfV4OverHTTP: each line is answered in its own version.
func TestLinesOfV4OverHTTP(t *testing.T) {
	t.Parallel()
	runV5Case(t, "they may stand beside those of V5", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		user, digger := h.token(t, "", models.ScopeMessagesSend).Secret, h.digAgent(t)
		a, lines := h.post(t, user, strings.Join([]string{
			"M1|User>O1|R|-|P1|N|-|call=dig;depth=2", askDig, "M3|User>O1|U|T1|-|X|-|-", "M4|User>O1|R|T5|P1|N|-|call=fly", "M5|User>O1|R|T5|P1|call=dig",
		}, "\n"))
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, []string{
			"O1>User|A|T1|P1|N|-|accepted;worker=W1",
			"O1>User|A|T1|P1|N|-|0|S2|B500|accepted;worker=W1",
			"O1>User|A|T1|-|X|-|cancelled",
			"O1>User|E|T5|P1|F|E99|desc=no agent offers fly",
			"O1>User|E|T5|-|F|E10|0|-|-|desc=invalid message format;details=the line has 6 segments, not 11, or 8 in V4",
		}, lines)
		a, lines = h.post(t, digger, "M1|W1>O1|S|T1|P1|D|-|depth=2")
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, []string{"O1>W1|A|T1|P1|D|-|noted"}, lines)
		task, err := h.Tasks(t.Context(), models.TaskQuery{State: models.TaskDone, Limit: 2})
		require.NoError(t, err)
		require.Len(t, task, 1)
		require.Equal(t, "S2", task[0].SessionID)
	})
	runV5Case(t, "a token that is not accepted is refused in V4", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		a, lines := h.post(t, "sesame", "M1|User>O1|R|-|P1|N|-|call=dig")
		require.Equal(t, http.StatusUnauthorized, a.StatusCode)
		require.Equal(t, []string{"O1>User|E|-|P1|F|E90|reason=token;desc=the token is not accepted"}, lines)
	})
	runV5Case(t, "J only declares, the version too", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, h *v5Fixture) {
		token := h.firstAgent(t, "ada")
		g := h.joinOver(t, transport.WebSocket, token, "")
		_, lines := h.post(t, token, "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V4")
		require.Contains(t, lines[0], "version=V4;mode=compat")
		require.Empty(t, h.waitForWorker(t, "ada", online).ProtocolVersion)
		g.sendLine(queryAgents)
		require.Equal(t, 10, strings.Count(g.next(), "|"))
	})
}
