//go:build unix

package background

import "syscall"

// TerminateProcessGroup sends SIGTERM to the group of a command.
func TerminateProcessGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGTERM) }

// KillProcessGroup kills the group of a command.
func KillProcessGroup(pid int) error { return syscall.Kill(-pid, syscall.SIGKILL) }
