//go:build unix && !linux

package sandbox

import (
	"os/exec"
	"syscall"
	"time"
)

// contain puts a child into a process group of its own. When this process is killed the
// child ends because its standard input does.
func contain(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// renounce has no counterpart here.
func renounce() error { return nil }

// cpu is not known of a process that lives.
func (p *process) cpu() time.Duration { return p.cpuInTheEnd() }

// memory is not known here.
func (p *process) memory() int64 { return 0 }
