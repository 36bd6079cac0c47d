//go:build !unix

package main

import (
	"os"
	"os/exec"
)

// There are no process groups here: only the command itself is killed. There is no signal to ask
// it to end, and its memory is unknown.

func contain(*exec.Cmd) {}

func groupMemory(int) int64 { return 0 }

func terminateGroup(pid int) error { return killGroup(pid) }

func killGroup(pid int) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return err
	}
	return p.Kill()
}

func exitStatus(state *os.ProcessState) int { return state.ExitCode() }

func maxMemory(*os.ProcessState) int64 { return 0 }

// startOf is unknown on this system: what a killed worker leaves running is not recorded.
func startOf(int) (started int64, boot string, ok bool) { return 0, "", false }

func (group) lives() bool { return false }
