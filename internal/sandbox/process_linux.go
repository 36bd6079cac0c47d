package sandbox

import (
	"bytes"
	"errors"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// setNoNewPrivileges keeps this thread and its children from gaining privileges (prctl(2)).
func setNoNewPrivileges() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }

// runningCPU returns the processor time of all threads of a running process, 0 after it has ended.
// It reads the clock of the process (clock_getcpuclockid(3)).
func runningCPU(pid int) time.Duration {
	var ts unix.Timespec
	const scheduled = 2 // CPUCLOCK_SCHED
	if err := unix.ClockGettime(int32(^pid)<<3|scheduled, &ts); err != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// exceededCPU reports whether the kernel ended a process for exceeding RLIMIT_CPU.
func exceededCPU(state *os.ProcessState) bool {
	status, ok := state.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGXCPU
}

// peakMemory returns the peak resident memory of a process in bytes, 0 after its end. The rusage of
// an ended child is of no use: it includes the memory of this process.
func peakMemory(pid int) int64 {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
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

// memoryHeadroom is what a child needs besides the memory of the engine, in bytes: Go's heap grows
// in steps of 64 MiB, and a frame is held more than once. The race detector needs more.
func memoryHeadroom() int64 {
	const headroom, raceDetector = 256 << 20, 3 << 30
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return headroom + raceDetector
	}
	return headroom
}

// confine limits this process to what a child needs, and returns its memory so far. Then it cannot
// open a file, socket or pipe. A timer comes first, because the runtime opens files for that.
func confine() (base int64, err error) {
	time.NewTimer(time.Hour).Stop()
	// When memory is short, the kernel should kill this process first. Writing may be forbidden.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	return statusField(status, "VmData:"), errors.Join(
		setLimit(unix.RLIMIT_CORE, 0),
		setLimit(unix.RLIMIT_FSIZE, 0),
		setLimit(unix.RLIMIT_NOFILE, 0),
	)
}

// setLimits sets the kernel's limits above those of the engine, which fails first with a reason:
// one and a half times the memory, because a growing array exists twice for a moment.
func setLimits(base int64, memoryMB int, timeout time.Duration) error {
	memory := int64(memoryMB) << 20
	// One thread runs the code, another one may collect garbage.
	seconds := 2*int64(timeout/time.Second) + 3
	return errors.Join(
		setLimit(unix.RLIMIT_DATA, uint64(base+memory+memory/2+memoryHeadroom())),
		setLimit(unix.RLIMIT_CPU, uint64(seconds)),
	)
}

func setLimit(resource int, limit uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	limit = min(limit, now.Max) // a process cannot raise it
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit})
}
