//go:build !unix

package sandbox

import (
	"os"
	"os/exec"
	"time"
)

// These systems have the limits of the engine and the deadline of the parent only: no process
// groups, and no measurements of a running child. When this process is killed, a child ends
// because its standard input closes.

func setProcessGroup(*exec.Cmd) {}

func setNoNewPrivileges() error { return nil }

func confine() (base int64, err error) { return 0, nil }

func setLimits(int64, int, time.Duration) error { return nil }

func killGroup(p *os.Process) { _ = p.Kill() }

func exceededCPU(*os.ProcessState) bool { return false }

func (p *process) cpu() time.Duration { return p.cpuAfterExit() }

func (p *process) memory() int64 { return 0 }
