package transport_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/transport"
	"comet/models"
)

// comeV4 opens a line of ada's, who speaks V4 from then on.
func (h *inn) comeV4(t *testing.T, way, token, data string) *talker {
	t.Helper()
	g, before := h.enter(t, way, token), h.CachedWorker("ada").ConnectionID
	joinV4 := "M0|W1>O1|J|T0|-|-|-|0|-|-|version=V4" + data
	if way == transport.TCP {
		joinV4 += ";token=" + token
	}
	g.say(joinV4)
	require.Equal(t, "O1>W1|A|T0|-|D|-|0|-|-|registered;id=W1;status=active;version=V4;mode=compat", unnumbered(g.hear()))
	h.worker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before && w.ProtocolVersion == "V4" })
	return g
}

// TestALineOfAWorkerOfV4 (PROTOCOL_V5 §1.2, §14.3): nothing on it has more than eight
// segments, whoever asks for the work.
func TestALineOfAWorkerOfV4(t *testing.T) {
	t.Parallel()
	ways(t, "gives it one task at a time, in V4", transport.Options{}, func(t *testing.T, h *inn, way string) {
		g := h.comeV4(t, way, h.first(t, "ada"), ";concurrency=9")
		one := h.submit(t, "ada")
		first := g.hear()
		require.Regexp(t, `^M\d+\|O1>W1\|R\|T1\|P\d\|N\|-\|`, first)
		require.Equal(t, 7, strings.Count(first, "|"))
		two := h.submit(t, "ada")
		h.tell(t, "ada", 1)
		said := g.hear()
		require.Contains(t, said, "|U|", "what is no work does not wait")
		require.Equal(t, 7, strings.Count(said, "|"))
		g.say("M1|W1>O1|U|T1|-|R|-|progress=50%")
		g.say("M2|W1>O1|S|T1|-|D|-|done")
		g.say("M2|W1>O1|S|T1|-|D|-|done") // once more
		var told []string
		for len(told) < 3 { // the next task comes beside the answers, in any order
			text := g.hear()
			require.Equal(t, 7, strings.Count(text, "|"), text)
			told = append(told, strings.Split(unnumbered(text), "|")[1])
		}
		require.ElementsMatch(t, []string{"A", "A", "R"}, told)
		for id, want := range map[string]models.TaskState{one.ID: models.TaskDone, two.ID: models.TaskNew} {
			task, err := h.Task(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, task.State)
		}
	})
	ways(t, "knows it again on the next one, which may be of V5", transport.Options{}, func(t *testing.T, h *inn, way string) {
		token := h.first(t, "ada")
		g := h.comeV4(t, way, token, "")
		h.submit(t, "ada")
		before := g.hear()
		g.drop()
		h.worker(t, "ada", func(w models.Worker) bool { return offline(w) && w.ProtocolVersion == "V4" })
		g = h.comeV4(t, way, token, "")
		again := g.hear()
		require.Equal(t, unnumbered(before), unnumbered(again))
		g.drop()
		h.worker(t, "ada", offline)
		g = h.come(t, way, token, "")
		require.Equal(t, 10, strings.Count(g.hear(), "|"))
		require.Empty(t, h.worker(t, "ada", online).ProtocolVersion)
	})
	ways(t, "takes another J, with another version", transport.Options{}, func(t *testing.T, h *inn, way string) {
		g := h.come(t, way, h.first(t, "ada"), ";concurrency=3")
		g.say("M2|W1>O1|J|T0|-|-|-|0|S0|-|version=V4")
		require.Contains(t, g.hear(), "|0|S0|-|registered;id=W1;status=active;version=V4;mode=compat")
		h.worker(t, "ada", func(w models.Worker) bool { return w.ProtocolVersion == "V4" && w.Concurrency == 1 })
		g.say("M3|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W*")
		require.Equal(t, "O1>W1|S|T0|-|D|-|agents=W1;count=1", unnumbered(g.hear()))
		g.say("M4|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, g.hear(), "version=V5")
		h.worker(t, "ada", func(w models.Worker) bool { return w.ProtocolVersion == "" && w.Concurrency == 3 })
	})
	plainRule(t, "does not begin with eight segments over TCP", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		g, _ := h.dialLine(t)
		g.say("M1|W1>O1|J|T0|-|-|-|version=V4;token=" + token)
		require.Equal(t, []string{"O1>W1|E|T0|-|F|E14|desc=unknown message type;details=TYPE: V4 has no type J"}, strings.Split(unnumbered(strings.Join(g.over(), "\n")), "\n"))
		g, _ = h.dialLine(t)
		g.say("M1|W1>O1|H|T0|-|-|-|load=1%")
		require.Contains(t, g.over()[0], "|E|T0|-|F|E13|reason=from;desc=")
		require.Empty(t, h.names, "nobody is registered")
	})
}

// TestLinesOfV4OverHTTP: each line is answered in its own version.
func TestLinesOfV4OverHTTP(t *testing.T) {
	t.Parallel()
	plainRule(t, "they may stand beside those of V5", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		user, digger := h.token(t, "", models.ScopeMessagesSend).Secret, h.digger(t)
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
	plainRule(t, "a token that is not accepted is refused in V4", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		a, lines := h.post(t, "sesame", "M1|User>O1|R|-|P1|N|-|call=dig")
		require.Equal(t, http.StatusUnauthorized, a.StatusCode)
		require.Equal(t, []string{"O1>User|E|-|P1|F|E90|reason=token;desc=the token is not accepted"}, lines)
	})
	plainRule(t, "J only declares, the version too", transport.Options{}, transport.ListenerOptions{}, func(t *testing.T, h *inn) {
		token := h.first(t, "ada")
		g := h.come(t, transport.WebSocket, token, "")
		_, lines := h.post(t, token, "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V4")
		require.Contains(t, lines[0], "version=V4;mode=compat")
		require.Empty(t, h.worker(t, "ada", online).ProtocolVersion)
		g.say(askRoll)
		require.Equal(t, 10, strings.Count(g.hear(), "|"))
	})
}
