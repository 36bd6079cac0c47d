//go:build unix && !linux

package sandbox

import (
	"os/exec"
	"syscall"
	"time"
)

// These systems have the limits of the engine and the deadline of the parent only.

// setProcessGroup puts a child into its own process group. When this process is killed, the child
// ends because its standard input closes.
func setProcessGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// setNoNewPrivileges has no counterpart.
func setNoNewPrivileges() error { return nil }

// confine has no counterpart.
func confine() (base int64, err error) { return 0, nil }

// setLimits has no counterpart.
func setLimits(int64, int, time.Duration) error { return nil }

// cpu is unknown while a process runs.
func (p *process) cpu() time.Duration { return p.cpuAfterExit() }

// memory is unknown.
func (p *process) memory() int64 { return 0 }
