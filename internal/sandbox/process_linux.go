package sandbox

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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
