package program

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/background"
)

// TestKillLeftover starts commands as a worker does, and the next worker with the same state.
func TestKillLeftover(t *testing.T) {
	t.Parallel()
	const task = "550e8400-e29b-41d4-a716-446655440004"
	// begin starts a command of a worker with this state, and returns when its child has started.
	begin := func(t *testing.T, state string, prepare func(*exec.Cmd)) (cmd *exec.Cmd, child int) {
		t.Helper()
		cmd = exec.CommandContext(t.Context(), "/bin/sh", "-c", "sleep 600 & echo $!; wait")
		cmd.Env = append(New(nil, &Options{State: state}).environ, taskVariable+task)
		background.SetProcessGroup(cmd)
		cmd.SysProcAttr.Pdeathsig = 0 // the test's threads come and go
		prepare(cmd)
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = background.KillProcessGroup(cmd.Process.Pid) })
		line, err := bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		child, err = strconv.Atoi(strings.TrimSpace(line))
		require.NoError(t, err)
		return cmd, child
	}
	unchanged := func(*exec.Cmd) {}
	requireEnd := func(t *testing.T, pid int) {
		t.Helper()
		require.Eventually(t, func() bool { return !alive(pid) }, time.Minute, 5*time.Millisecond)
	}

	t.Run("kills processes whose command was killed with its worker", func(t *testing.T) {
		t.Parallel()
		state := t.TempDir()
		cmd, child := begin(t, state, unchanged)
		require.NoError(t, cmd.Process.Kill())
		_ = cmd.Wait()
		require.True(t, alive(child))
		require.Equal(t, []string{task}, KillLeftover(state))
		requireEnd(t, child)
	})

	t.Run("kills a command that outlived its worker", func(t *testing.T) {
		t.Parallel()
		state := t.TempDir()
		cmd, child := begin(t, state, unchanged)
		require.Equal(t, []string{task}, KillLeftover(state))
		require.Error(t, cmd.Wait())
		requireEnd(t, child)
		require.Empty(t, KillLeftover(state))
	})

	t.Run("spares the commands of a worker with another state", func(t *testing.T) {
		t.Parallel()
		cmd, child := begin(t, t.TempDir(), unchanged)
		require.Empty(t, KillLeftover(t.TempDir()))
		require.True(t, alive(cmd.Process.Pid))
		require.True(t, alive(child))
	})

	t.Run("spares a daemon, which has a session of its own", func(t *testing.T) {
		t.Parallel()
		state := t.TempDir()
		cmd, child := begin(t, state, func(cmd *exec.Cmd) { cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true })
		require.Empty(t, KillLeftover(state))
		require.True(t, alive(cmd.Process.Pid))
		require.True(t, alive(child))
	})

	t.Run("spares the jobs of a daemon, which have groups of their own", func(t *testing.T) {
		t.Parallel()
		state := t.TempDir()
		_, child := begin(t, state, func(cmd *exec.Cmd) {
			cmd.Path, cmd.Args = os.Args[0], []string{os.Args[0], "-test.run=^TestDaemonWithJob$"}
			cmd.Env = append(cmd.Env, daemonVariable+"=1")
			cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Setsid = false, true
		})
		t.Cleanup(func() { _ = background.KillProcessGroup(child) })
		require.Equal(t, child, processes()[child].group)
		require.Empty(t, KillLeftover(state))
		require.True(t, alive(child))
	})
}

const daemonVariable = "TEST_DAEMON"

// TestDaemonWithJob is the daemon that TestKillLeftover starts: it starts a job with a process group
// of its own, as a shell with job control does, and prints its process id.
func TestDaemonWithJob(t *testing.T) {
	t.Parallel()
	if os.Getenv(daemonVariable) == "" {
		return
	}
	job := exec.CommandContext(t.Context(), "sleep", "600")
	background.SetProcessGroup(job)
	job.SysProcAttr.Pdeathsig = 0
	require.NoError(t, job.Start())
	_, _ = fmt.Println(job.Process.Pid)
	_ = job.Wait()
}
