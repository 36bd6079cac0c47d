//go:build unix && !linux

package upstream

import (
	"os/exec"
	"syscall"
)

// contain puts a program into its own process group. When this process is killed, the input of the
// program is closed.
func contain(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// reap waits for a program and kills the rest of its group.
func reap(cmd *exec.Cmd) {
	_ = cmd.Wait() // the process state has the result
	_ = killGroup(cmd.Process.Pid)
}
