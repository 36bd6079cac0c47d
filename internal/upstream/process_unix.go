//go:build unix

package upstream

import "syscall"

// terminateGroup sends SIGTERM to a process group, killGroup sends SIGKILL.
func terminateGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

func killGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
