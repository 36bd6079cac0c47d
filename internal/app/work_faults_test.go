package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	comet "comet/agent"
	"comet/internal/testkit/loopback"
)

// TestCutNetwork: connections of agents and clients are cut all the time, in the middle of
// messages. Every task ends. It has its result unless its agent was disconnected at each attempt,
// and the function of an agent runs once for a task.
func TestCutNetwork(t *testing.T) {
	t.Parallel()
	for starter := range (&jobRunner{}).starters() {
		t.Run(starter, func(t *testing.T) {
			t.Parallel()
			onEveryDatabase(t, func(t *testing.T, database setting) { testCutNetwork(t, database, starter) })
		})
	}
}

func testCutNetwork(t *testing.T, database setting, starter string) {
	t.Helper()
	data, address, tcpAddress := t.TempDir(), loopback.Address(t), loopback.Address(t)
	p := serveAt(t, data, address, database, v5Listen(tcpAddress))
	c := newClient(t, p.url(t), adminToken(t, data))
	httpProxy, tcpProxy := newProxy(t, address), newProxy(t, tcpAddress)
	runner := &jobRunner{tokens: 7}
	runner.starters()[starter](t, httpProxy.url(), tcpProxy.address(), c.registerInfra(t, "infra-1", "job"), 8)
	sender, err := comet.NewClient(httpProxy.url(), c.Token, nil)
	require.NoError(t, err)
	for _, cut := range []*proxy{httpProxy, tcpProxy} {
		stop := cut.cutRepeatedly(time.Second)
		defer stop()
	}
	var all []*job
	for n := range 60 {
		j := newJob(n, 50)
		j.request.Hints.MaxDuration = time.Minute
		require.True(t, submitUntilAccepted(t.Context(), sender, j))
		all = append(all, j)
	}
	charged, done := c.settle(t, all...), int64(0)
	for _, d := range charged.tasks {
		if d.State == "done" {
			done++
			continue
		}
		for _, a := range d.Attempts { // the agent was disconnected each time
			require.Nil(t, a.AgentID, "%+v", d)
		}
	}
	require.Equal(t, done, runner.runs.Load(), "each task runs once")
	require.Positive(t, done)
	charged.requireSettled(t, "infra-1")
	p.stop(t)
}

// worker starts a "comet worker" process with a shell command.
func worker(t *testing.T, url, token, script string) *process {
	t.Helper()
	return start(t, []string{"worker", "--server", url, "--state", t.TempDir(), "--", "sh", "-c", script}, env("COMET_TOKEN="+token))
}

// TestKilledWorker: the worker of a command is killed while it works. The attempt times out,
// another worker does the task, and the command of the killed worker ends too.
func TestKilledWorker(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, testKilledWorker)
}

func testKilledWorker(t *testing.T, database setting) {
	t.Helper()
	data := t.TempDir()
	p := serve(t, data, database)
	c := newClient(t, p.url(t), adminToken(t, data))
	pid := filepath.Join(t.TempDir(), "pid")
	hung := worker(t, c.URL, c.registerInfra(t, "infra-1", "job"), "echo $$ > "+pid+"; exec sleep 600")
	eventually(t, func() bool { return c.online(t, "infra-1") }, "the first worker is online")
	j := newJob(1, 50)
	j.request.Hints.MaxDuration = 2 * time.Second
	sender, err := comet.NewClient(c.URL, c.Token, c.HTTP)
	require.NoError(t, err)
	require.True(t, submitUntilAccepted(t.Context(), sender, j))
	command := 0
	eventually(t, func() bool {
		text, err := os.ReadFile(pid)
		command = atoi(strings.TrimSpace(string(text)))
		return err == nil && command > 0
	}, "the command runs")
	hung.kill()
	other := worker(t, c.URL, c.registerInfra(t, "infra-2", "job"), `echo "::tokens 9"; printf "job $COMET_PARAM_N"`)
	charged := c.settle(t, j)
	d := charged.tasks[j.request.TaskID]
	require.Equal(t, "done", d.State, "%+v", d)
	require.GreaterOrEqual(t, len(d.Attempts), 2)
	require.Equal(t, "infra-1", *d.Attempts[0].AgentID)
	require.Equal(t, "timed_out", d.Attempts[0].State)
	require.Equal(t, "infra-2", *d.Attempts[len(d.Attempts)-1].AgentID)
	eventually(t, func() bool { return syscall.Kill(command, 0) != nil }, "the command of the killed worker is gone")
	require.EqualValues(t, 9, charged.tokensOf(t, "infra-2"))
	charged.requireSettled(t, "infra-1", "infra-2")
	other.stop(t)
	p.stop(t)
}

func atoi(text string) (n int) {
	for _, d := range text {
		if d < '0' || d > '9' {
			return 0
		}
		n = n*10 + int(d-'0')
	}
	return n
}

// online reports whether an agent is online.
func (c *client) online(t *testing.T, id string) bool {
	t.Helper()
	status, body, err := c.do(t.Context(), "GET", "/api/v1/workers/"+id, nil)
	require.NoError(t, err)
	return status == 200 && strings.Contains(string(body), `"state":"online"`)
}
