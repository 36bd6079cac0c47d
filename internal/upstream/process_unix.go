//go:build unix

package upstream

import "syscall"

// terminateGroup asks a process group to end, killGroup ends it.
func terminateGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
