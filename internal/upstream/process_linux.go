package upstream

import (
	"errors"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// contain puts a program into a process group of its own, and has it killed when the
// thread that starts it ends.
func contain(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// reap waits for a program and ends what it leaves in its group. That is done before its
// number is given back, so that no other group is meant.
func reap(cmd *exec.Cmd) {
	pid := cmd.Process.Pid
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	_ = killGroup(pid) // mostly there is nobody
	_ = cmd.Wait()     // the state tells
}
