package app_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"comet/internal/config"
	"comet/store/storetest"
)

// TestRepeatedV5Messages: a message that is sent twice has its effect once: on the same connection,
// over HTTP at the same time, and on the next connection after the first has ended. The tasks are
// that of PROTOCOL_V5 §12.2, and a second one that fails.
func TestRepeatedV5Messages(t *testing.T) {
	t.Parallel()
	for _, name := range storetest.Databases() {
		for where, again := range map[string]func(*repeatingWorker, string){
			"on the same connection": (*repeatingWorker).onSameConnection, "over HTTP": (*repeatingWorker).overHTTP, "on the next connection": (*repeatingWorker).onNextConnection,
		} {
			t.Run(where+"/"+name, func(t *testing.T) {
				t.Parallel()
				testRepeatedMessages(t, configured(t, name), again)
			})
		}
	}
}

// repeatingWorker is a worker that sends every message twice.
type repeatingWorker struct {
	*tcpClient

	client       *client // with the token of the worker
	name, number string
	repeat       func(*repeatingWorker, string)
}

func newRepeatingWorker(t *testing.T, admin *client, address, name string, again func(*repeatingWorker, string)) *repeatingWorker {
	t.Helper()
	w := &repeatingWorker{tcpClient: dialTCP(t, address), name: name, repeat: again}
	w.number = w.join(";name=" + name + ";caps=custom:" + name)
	w.client = newClient(t, admin.URL, admin.createToken(t, "v5-"+name))
	eventually(t, func() bool { return admin.online(t, "v5-"+name) }, "the agent is online")
	return w
}

// sendTwice sends a line twice. ME stands for the number of the worker.
func (w *repeatingWorker) sendTwice(line string) {
	w.t.Helper()
	line = strings.ReplaceAll(line, "ME", w.number)
	w.send(line)
	w.repeat(w, line)
}

func (w *repeatingWorker) onSameConnection(line string) { w.send(line) }

func (w *repeatingWorker) overHTTP(line string) {
	w.waitUntilHandled() // a piece of a result that arrives after the end of its task is an error
	answer, _ := w.client.postLines(w.t, line)
	require.NotContains(w.t, answer, "|E|", line)
}

func (w *repeatingWorker) onNextConnection(line string) {
	address := w.conn.RemoteAddr().String()
	require.NoError(w.t, w.conn.(*net.TCPConn).CloseWrite())
	w.readAll() // unfinished messages get an E30
	w.tcpClient = dialTCP(w.t, address)
	require.Equal(w.t, w.number, w.join(";name="+w.name))
	w.send(line)
	w.waitUntilHandled() // before this connection ends, too
}

// waitUntilHandled waits until the messages before on the connection are handled.
func (w *repeatingWorker) waitUntilHandled() {
	w.send("M8|" + w.number + ">O1|K|T0|-|-|-|0|S0|-|caps=custom:" + w.name)
	w.waitFor("A|T0")
}

// waitFor waits for a line of a type and skips the replies to earlier lines.
func (w *repeatingWorker) waitFor(kind string) {
	w.t.Helper()
	for {
		line := w.next()
		require.NotContains(w.t, line, "|E|")
		if strings.Contains(line, "|"+kind+"|") {
			return
		}
	}
}

func testRepeatedMessages(t *testing.T, cfg config.Config, again func(*repeatingWorker, string)) {
	t.Helper()
	a := startWithV5(t, cfg, nil)
	c := newClient(t, a.URL(), adminToken(t, cfg.Data))
	digger, helper := newRepeatingWorker(t, c, a.V5Addr(), "digger", again), newRepeatingWorker(t, c, a.V5Addr(), "helper", again)

	_, first := c.postLines(t, "M1|User>O1|R|-|P1|N|-|0|-|B1000|call=digger;keep")
	digger.waitFor("R")
	digger.sendTwice("M2|ME>O1|U|T1|P1|R|-|0|S1|-|desc=it digs")
	digger.sendTwice(`M3|ME>O1|U|T1|P1|R|-|0|S1|-|part=1;text="a hole "`)
	digger.sendTwice("M4|ME>O1|U|T1|P1|R|-|0|S1|-|part=2;text=and another")
	digger.sendTwice("M5|ME>" + helper.number + "|X|T1|P1|R|-|1|S1|B500|call=helper;reason=specialized")
	helper.waitFor("X")
	helper.sendTwice("M2|ME>" + digger.number + "|S|T1|P1|D|-|1|S1|B300|tests=3")
	digger.sendTwice("M6|ME>O1|S|T1|P1|D|-|0|S1|B200|src=#REF:T1:raw;parts=2")
	c.waitForEnd(t, first, "done")

	// A request that is sent twice at the same time submits one task.
	var asking sync.WaitGroup
	tasks := make([]string, 2)
	for n := range tasks {
		asking.Go(func() {
			var answer string
			if answer, tasks[n] = c.postLines(t, "M2|User>O1|R|T2|P1|N|-|0|S1|B100|call=helper"); !strings.Contains(answer, "|A|T2|") {
				t.Errorf("the request is answered with %s", answer)
			}
		})
	}
	asking.Wait()
	require.Equal(t, tasks[0], tasks[1])
	helper.waitFor("R")
	helper.sendTwice("M3|ME>O1|E|T2|P1|F|E33|0|S1|B90|desc=no spade")
	c.waitForEnd(t, tasks[0], "failed")

	require.Equal(t, "a hole and another", c.outputOf(t, first, "result"))
	require.Equal(t, 1, strings.Count(c.outputOf(t, first, "log"), "it digs"))
	require.EqualValues(t, 300, c.used(t, "v5-digger"))
	require.EqualValues(t, 210, c.used(t, "v5-helper"))
	// All messages must be processed before they are counted.
	for _, w := range []*repeatingWorker{digger, helper} {
		w.send("M7|" + w.number + ">O1|K|T0|-|-|-|0|S0|-|caps=custom:nothing")
		w.waitFor("A|T0")
	}
	db := opened(t, cfg)
	require.Equal(t, []string{"0\t1", "0\t1", "1\t1"}, scanned(t, db, "SELECT t.depth, a.attempt FROM (SELECT task_id, attempt FROM attempts UNION ALL SELECT id, attempt FROM tasks WHERE attempt_state < 6) a JOIN tasks t ON t.id = a.task_id ORDER BY 1, 2"))
	require.Equal(t, []string{"10", "200", "300"}, scanned(t, db, "SELECT tokens FROM usage_facts ORDER BY tokens"))
	require.Equal(t, []string{"3"}, scanned(t, db, "SELECT count(*) FROM outcomes"))
	require.Equal(t, []string{"1"}, scanned(t, db, "SELECT count(*) FROM tasks WHERE parent_id IS NOT NULL"))
}

// waitForEnd waits for the end of a task.
func (c *client) waitForEnd(t *testing.T, id, state string) {
	t.Helper()
	eventually(t, func() bool { return get[taskDetail](t, c, "/api/v1/tasks/"+id).ended() }, "the task ends")
	require.Equal(t, state, get[taskDetail](t, c, "/api/v1/tasks/"+id).State)
}

func (c *client) outputOf(t *testing.T, id, stream string) string {
	t.Helper()
	_, text, err := c.do(t.Context(), "GET", "/api/v1/tasks/"+id+"/output?stream="+stream, nil)
	require.NoError(t, err)
	return string(text)
}
