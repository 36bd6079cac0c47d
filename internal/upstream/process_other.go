//go:build !unix

package upstream

import (
	"os"
	"os/exec"
)

// This system has no process groups: only the program itself is ended, and its children continue.

func contain(*exec.Cmd) {}

func reap(cmd *exec.Cmd) { _ = cmd.Wait() }

func terminateGroup(pid int) error { return killGroup(pid) }

func killGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}
