//go:build unix

package sandbox

import (
	"os"
	"syscall"
)

// killGroup kills a process and its process group.
func killGroup(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

// exceededCPU reports whether the kernel ended a process for exceeding RLIMIT_CPU.
func exceededCPU(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGXCPU
}
