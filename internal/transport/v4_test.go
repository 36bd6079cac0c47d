package transport_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/transport"
	"comet/models"
	"comet/store"
)

// joinV4Over opens a connection of the agent ada that uses V4 from then on.
func (f *v5Fixture) joinV4Over(t *testing.T, via, token, data string) *v5Client {
	t.Helper()
	c, before := f.dialOver(t, via, token), f.CachedWorker("ada").ConnectionID
	joinV4 := "M0|W1>O1|J|T0|-|-|-|0|-|-|version=V4" + data
	if via == transport.TCP {
		joinV4 += ";token=" + token
	}
	c.sendLine(joinV4)
	require.Equal(t, "O1>W1|A|T0|-|D|-|0|-|-|registered;id=W1;status=active;version=V4;mode=compat", withoutNumbers(c.next()))
	f.WaitForWorker(t, "ada", func(w models.Worker) bool { return online(w) && w.ConnectionID != before && w.ProtocolVersion == "V4" })
	return c
}

// TestV4Worker (PROTOCOL_V5 §1.2, §14.3): no line has more than eight segments, also for tasks of V5
// requesters.
func TestV4Worker(t *testing.T) {
	t.Parallel()
	runV5Transports(t, "delivers one task at a time in V4", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		c := f.joinV4Over(t, via, f.firstAgent(t, "ada"), ";concurrency=9")
		one := f.submit(t, "ada")
		first := c.next()
		require.Regexp(t, `^M\d+\|O1>W1\|R\|T1\|P\d\|N\|-\|`, first)
		require.Equal(t, 7, strings.Count(first, "|"))
		two := f.submit(t, "ada")
		f.enqueue(t, "ada", 1)
		got := c.next()
		require.Contains(t, got, "|U|", "a notice does not wait")
		require.Equal(t, 7, strings.Count(got, "|"))
		c.sendLine("M1|W1>O1|U|T1|-|R|-|progress=50%")
		c.sendLine("M2|W1>O1|S|T1|-|D|-|done")
		c.sendLine("M2|W1>O1|S|T1|-|D|-|done") // again
		var messages []string
		for len(messages) < 3 { // the next task and the replies arrive in any order
			text := c.next()
			require.Equal(t, 7, strings.Count(text, "|"), text)
			messages = append(messages, strings.Split(withoutNumbers(text), "|")[1])
		}
		require.ElementsMatch(t, []string{"A", "A", "R"}, messages)
		for id, want := range map[string]models.TaskState{one.ID: models.TaskDone, two.ID: models.TaskNew} {
			task, err := f.Task(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, want, task.State)
		}
	})
	runV5Transports(t, "may reconnect with V4 or V5", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		token := f.firstAgent(t, "ada")
		c := f.joinV4Over(t, via, token, "")
		f.submit(t, "ada")
		before := c.next()
		c.close()
		f.WaitForWorker(t, "ada", func(w models.Worker) bool { return offline(w) && w.ProtocolVersion == "V4" })
		c = f.joinV4Over(t, via, token, "")
		again := c.next()
		require.Equal(t, withoutNumbers(before), withoutNumbers(again))
		c.close()
		f.WaitForWorker(t, "ada", offline)
		c = f.joinOver(t, via, token, "")
		require.Equal(t, 10, strings.Count(c.next(), "|"))
		require.Empty(t, f.WaitForWorker(t, "ada", online).ProtocolVersion)
	})
	runV5Transports(t, "may change its version by another J", transport.Options{}, func(t *testing.T, f *v5Fixture, via string) {
		c := f.joinOver(t, via, f.firstAgent(t, "ada"), ";concurrency=3")
		c.sendLine("M2|W1>O1|J|T0|-|-|-|0|S0|-|version=V4")
		require.Contains(t, c.next(), "|0|S0|-|registered;id=W1;status=active;version=V4;mode=compat")
		f.WaitForWorker(t, "ada", func(w models.Worker) bool { return w.ProtocolVersion == "V4" && w.Concurrency == 1 })
		c.sendLine("M3|W1>O1|Q|T0|-|-|-|0|S0|-|filter=W*")
		require.Equal(t, "O1>W1|S|T0|-|D|-|agents=W1;count=1", withoutNumbers(c.next()))
		c.sendLine("M4|W1>O1|J|T0|-|-|-|0|S0|-|version=V5")
		require.Contains(t, c.next(), "version=V5")
		f.WaitForWorker(t, "ada", func(w models.Worker) bool { return w.ProtocolVersion == "" && w.Concurrency == 3 })
	})
	runV5Case(t, "cannot join with eight segments over TCP", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		c, _ := f.dialTCP(t)
		c.sendLine("M1|W1>O1|J|T0|-|-|-|version=V4;token=" + token)
		require.Equal(t, []string{"O1>W1|E|T0|-|F|E14|desc=unknown message type;details=TYPE: V4 has no type J"}, strings.Split(withoutNumbers(strings.Join(c.readUntilClosed(), "\n")), "\n"))
		c, _ = f.dialTCP(t)
		c.sendLine("M1|W1>O1|H|T0|-|-|-|load=1%")
		require.Contains(t, c.readUntilClosed()[0], "|E|T0|-|F|E13|reason=from;desc=")
		require.Empty(t, f.names, "no agent is enrolled")
	})
}

// TestV4OverHTTP: each line gets a reply in its own version.
func TestV4OverHTTP(t *testing.T) {
	t.Parallel()
	runV5Case(t, "V4 and V5 lines may be mixed", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		user, worker := f.token(t, "", models.ScopeMessagesSend).Secret, f.digAgent(t)
		a, lines := f.post(t, user, strings.Join([]string{
			"M1|User>O1|R|-|P1|N|-|call=dig;depth=2", askDig, "M3|User>O1|U|T1|-|X|-|-", "M4|User>O1|R|T5|P1|N|-|call=fly", "M5|User>O1|R|T5|P1|call=dig",
		}, "\n"))
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, []string{
			"O1>User|A|T1|P1|N|-|accepted;worker=W1",
			"O1>User|A|T1|P1|N|-|0|S2|B500|accepted;worker=W1",
			"O1>User|A|T1|-|X|-|cancelled",
			"O1>User|E|T5|P1|F|E99|desc=no agent offers fly",
			"O1>User|E|T5|-|F|E10|0|-|-|desc=invalid message format;details=the message has 6 segments, not 11, or 8 in V4",
		}, lines)
		a, lines = f.post(t, worker, "M1|W1>O1|S|T1|P1|D|-|depth=2")
		require.Equal(t, http.StatusOK, a.StatusCode)
		require.Equal(t, []string{"O1>W1|A|T1|P1|D|-|noted"}, lines)
		task, err := f.Tasks(t.Context(), store.TaskQuery{State: models.TaskDone, Limit: 2})
		require.NoError(t, err)
		require.Len(t, task, 1)
		require.Equal(t, "S2", task[0].SessionID)
	})
	runV5Case(t, "a rejected token is refused in V4", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		a, lines := f.post(t, "sesame", "M1|User>O1|R|-|P1|N|-|call=dig")
		require.Equal(t, http.StatusUnauthorized, a.StatusCode)
		require.Equal(t, []string{"O1>User|E|-|P1|F|E90|reason=token;desc=the token is not accepted"}, lines)
	})
	runV5Case(t, "J does not change the version of the connection", transport.Options{}, transport.TCPOptions{}, func(t *testing.T, f *v5Fixture) {
		token := f.firstAgent(t, "ada")
		c := f.joinOver(t, transport.WebSocket, token, "")
		_, lines := f.post(t, token, "M1|W1>O1|J|T0|-|-|-|0|S0|-|version=V4")
		require.Contains(t, lines[0], "version=V4;mode=compat")
		require.Empty(t, f.WaitForWorker(t, "ada", online).ProtocolVersion)
		c.sendLine(queryAgents)
		require.Equal(t, 10, strings.Count(c.next(), "|"))
	})
}
