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
)

// TestANetworkThatIsCut: lines are dropped in the middle of messages all the time, those
// of the agents and those of the askers. Every task ends, with its result unless its
// agent's line was down at each attempt, and no agent's function sees a piece of work
// twice.
func TestANetworkThatIsCut(t *testing.T) {
	t.Parallel()
	for dialect := range (&jobRunner{}).starters() {
		t.Run(dialect, func(t *testing.T) {
			t.Parallel()
			onEveryDatabase(t, func(t *testing.T, database setting) { testCutNetwork(t, database, dialect) })
		})
	}
}

func testCutNetwork(t *testing.T, database setting, dialect string) {
	t.Helper()
	data, address, text := t.TempDir(), freeAddress(t), freeAddress(t)
	p := serveAt(t, data, address, database, v5Listen(text))
	c := newClient(t, p.url(t), adminToken(t, data))
	net, lines := newProxy(t, address), newProxy(t, text)
	work := &jobRunner{tokens: 7}
	work.starters()[dialect](t, net.url(), lines.address(), c.registerInfra(t, "infra-1", "job"), 8)
	speak, err := comet.NewClient(net.url(), c.token, nil)
	require.NoError(t, err)
	for _, cut := range []*proxy{net, lines} {
		stop := cut.cutRepeatedly(time.Second)
		defer stop()
	}
	var all []*job
	for n := range 60 {
		j := newJob(n, 50)
		j.request.Hints.MaxDuration = time.Minute
		require.True(t, submitUntilAccepted(t.Context(), speak, j))
		all = append(all, j)
	}
	charged, done := c.settle(t, all...), int64(0)
	for _, d := range charged.tasks {
		if d.State == "done" {
			done++
			continue
		}
		for _, a := range d.Attempts { // its line was down each time
			require.Nil(t, a.AgentID, "%+v", d)
		}
	}
	require.Equal(t, done, work.runs.Load(), "each is done once")
	require.Positive(t, done)
	charged.requireSettled(t, "infra-1")
	p.stop(t)
}

// worker starts a real "comet worker" whose command is a shell's.
func worker(t *testing.T, url, token, script string) *process {
	t.Helper()
	return start(t, []string{"worker", "--server", url, "--state", t.TempDir(), "--", "sh", "-c", script}, env("COMET_TOKEN="+token))
}

// TestAWorkerThatIsKilled: a command's worker is killed in the middle of the work. The
// work ends at its deadline and another worker does it; the killed worker's command is
// gone too.
func TestAWorkerThatIsKilled(t *testing.T) {
	t.Parallel()
	onEveryDatabase(t, testKilledWorker)
}

func testKilledWorker(t *testing.T, database setting) {
	t.Helper()
	data := t.TempDir()
	p := serve(t, data, database)
	c := newClient(t, p.url(t), adminToken(t, data))
	pid := filepath.Join(t.TempDir(), "pid")
	hung := worker(t, c.url, c.registerInfra(t, "infra-1", "job"), "echo $$ > "+pid+"; exec sleep 600")
	eventually(t, func() bool { return c.online(t, "infra-1") }, "the first worker is there")
	j := newJob(1, 50)
	j.request.Hints.MaxDuration = 2 * time.Second
	speak, err := comet.NewClient(c.url, c.token, c.http)
	require.NoError(t, err)
	require.True(t, submitUntilAccepted(t.Context(), speak, j))
	command := 0
	eventually(t, func() bool {
		text, err := os.ReadFile(pid)
		command = atoi(strings.TrimSpace(string(text)))
		return err == nil && command > 0
	}, "the command runs")
	hung.kill()
	other := worker(t, c.url, c.registerInfra(t, "infra-2", "job"), `echo "::tokens 9"; printf "job $COMET_PARAM_N"`)
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

// online reports whether an agent takes work.
func (c *client) online(t *testing.T, id string) bool {
	t.Helper()
	status, body, err := c.do(t.Context(), "GET", "/api/v1/workers/"+id, nil)
	require.NoError(t, err)
	return status == 200 && strings.Contains(string(body), `"state":"online"`)
}
