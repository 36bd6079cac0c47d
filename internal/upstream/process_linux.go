package upstream

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// contain puts a program into its own process group. The kernel kills it when the thread that
// starts it ends.
func contain(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for a program and kills the rest of its group. It does so before the pid is released,
// because another group could get the same number.
func reap(cmd *exec.Cmd) {
	pid := cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = killGroup(pid) // usually the group is empty
	_ = cmd.Wait()     // the process state has the result
}
