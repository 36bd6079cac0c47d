package sandbox

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// contain puts a child into a process group of its own, and has the system kill it when the
// thread that starts it ends.
func contain(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// renounce makes the calling thread, and what it starts, unable to gain rights by executing
// a program that has some.
func renounce() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// cpu is the processor time a process has used, in all its threads. It reads the process's
// own clock (clock_getcpuclockid(3)), so that a child that is about to be killed is measured
// like one that is done.
func (p *process) cpu() time.Duration {
	var ts unix.Timespec
	const scheduled = 2 // CPUCLOCK_SCHED
	if err := unix.ClockGettime(int32(^p.cmd.Process.Pid)<<3|scheduled, &ts); err != nil {
		return p.cpuInTheEnd()
	}
	return time.Duration(ts.Nano())
}

// memory is the most memory a process had resident, in bytes; 0 for one that has ended. The
// system's account of ended children would count this process's memory in: a child begins as
// a copy of it.
func (p *process) memory() int64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(p.cmd.Process.Pid) + "/status")
	if err != nil {
		return 0
	}
	return statusField(status, "VmHWM:")
}

// statusField reads a size from /proc/PID/status (proc_pid_status(5)), in bytes.
func statusField(status []byte, name string) int64 {
	for line := range bytes.Lines(status) {
		if fields := bytes.Fields(line); len(fields) > 1 && string(fields[0]) == name {
			kb, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			return kb << 10
		}
	}
	return 0
}
