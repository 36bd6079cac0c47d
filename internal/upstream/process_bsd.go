//go:build unix && !linux

package upstream

import (
	"os/exec"
	"syscall"
)

// contain puts a program into a process group of its own. When this process is killed,
// the program finds its input closed.
func contain(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// reap waits for a program and ends what it leaves in its group.
func reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the state tells
	_ = killGroup(cmd.Process.Pid)
}
