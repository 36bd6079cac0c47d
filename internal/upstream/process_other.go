//go:build !unix

package upstream

import (
	"os"
	"os/exec"
)

// There are no process groups here: the program alone is ended, and what it started goes
// on.

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
