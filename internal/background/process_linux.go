package background

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// SetProcessGroup has a command start in its own process group. The kernel kills the command when
// the thread that starts it ends, which also happens when this process is killed: the caller locks
// the thread (runtime.LockOSThread) until the command has ended.
func SetProcessGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// WaitProcessGroup waits for a command and kills the rest of its group, before the pid is released
// and another group can get the same number. cmd.ProcessState has the result.
func WaitProcessGroup(cmd *exec.Cmd) {
	pid := cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = KillProcessGroup(pid) // usually the group is empty
	_ = cmd.Wait()
}
