//go:build unix && !linux

package background

import (
	"os/exec"
	"syscall"
)

// SetProcessGroup has a command start in its own process group. When this process is killed, the
// command only finds its standard input closed.
func SetProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// WaitProcessGroup waits for a command and kills the rest of its group. cmd.ProcessState has the
// result.
func WaitProcessGroup(cmd *exec.Cmd) {
	_ = cmd.Wait()
	_ = KillProcessGroup(cmd.Process.Pid)
}
