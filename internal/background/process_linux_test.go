package background_test

import (
	"bufio"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/background"
)

func TestProcessGroup(t *testing.T) {
	t.Parallel()
	runtime.LockOSThread() // the command ends with the thread
	defer runtime.UnlockOSThread()
	// start starts a command that starts another process, and returns the pid of that one.
	start := func(t *testing.T, script string) (cmd *exec.Cmd, child int) {
		t.Helper()
		cmd = exec.CommandContext(t.Context(), "/bin/sh", "-c", "sleep 600 & echo $!; "+script)
		background.SetProcessGroup(cmd)
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
	for _, c := range []struct {
		name, script, state string
		end                 func(pid int) error
	}{
		{"kills what a command left running", "exit 3", "exit status 3", nil},
		{"terminates the whole group", "wait", "signal: terminated", background.TerminateProcessGroup},
		{"kills the whole group", "wait", "signal: killed", background.KillProcessGroup},
	} {
		cmd, child := start(t, c.script)
		if c.end != nil {
			require.NoError(t, c.end(cmd.Process.Pid), c.name)
		}
		background.WaitProcessGroup(cmd)
		require.Equal(t, c.state, cmd.ProcessState.String(), c.name)
		require.Eventually(t, func() bool { return ended(child) }, time.Minute, 5*time.Millisecond, c.name)
	}
}

// ended reports whether a process has ended; its parent may not have waited for it yet.
func ended(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}
