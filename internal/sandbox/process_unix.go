//go:build unix

package sandbox

import (
	"os"
	"syscall"
)

// killGroup ends a process and whatever it has started.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// overProcessorTime reports whether the system ended a process because of its RLIMIT_CPU.
func overProcessorTime(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGXCPU
}
