//go:build !unix

package background

import (
	"os"
	"os/exec"
)

// This system has no process groups: only the command itself is killed, and its children continue.

// SetProcessGroup does nothing.
func SetProcessGroup(*exec.Cmd) {}

// WaitProcessGroup waits for a command. cmd.ProcessState has the result.
func WaitProcessGroup(cmd *exec.Cmd) { _ = cmd.Wait() }

// TerminateProcessGroup kills the command.
func TerminateProcessGroup(pid int) error { return KillProcessGroup(pid) }

// KillProcessGroup kills the command.
func KillProcessGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
