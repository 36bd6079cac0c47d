package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"
	"unsafe"

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

// protectProcess keeps the memory of this process from other processes of its user, and its open
// files from the programs that it starts. Go marks the files that it opens itself.
func protectProcess() {
	files, _ := os.ReadDir("/proc/self/fd") // without /proc no child starts
	for _, file := range files {
		if fd, err := strconv.Atoi(file.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) // it never fails
}

// restrictThread restricts this thread and the programs that it starts: they gain no privileges
// (prctl(2)), have no capabilities (capabilities(7)), and cannot create, delete or rename files,
// connect over TCP, or trace or signal other processes (landlock(7)). A kernel or container may refuse
// all but the first; filterCalls does not depend on them.
func restrictThread() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for capability := uintptr(0); unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) == nil; capability++ {
	}
	header, capabilities := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
	if unix.Capget(&header, &capabilities[0]) == nil {
		capabilities[0].Inheritable, capabilities[1].Inheritable = 0, 0
		_ = unix.Capset(&header, &capabilities[0])
	}
	// A child executes this program and opens files below /proc, so execution and opening stay allowed.
	const oldest = unix.LANDLOCK_ACCESS_FS_MAKE_SYM<<1 - unix.LANDLOCK_ACCESS_FS_REMOVE_DIR // all between
	for _, rules := range []unix.LandlockRulesetAttr{{
		Handled_access_fs:  oldest | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV,
		Handled_access_net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP,
		Scoped:             unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL,
	}, {Handled_access_fs: oldest}} {
		fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&rules)), unsafe.Sizeof(rules), 0)
		if errno == 0 {
			_, _, _ = unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0)
			return unix.Close(int(fd))
		}
	}
	return nil
}

// allowedCalls are the system calls that a confined child may always make: those of the runtimes of
// Go and C, and reading and writing of open files.
func allowedCalls() []uint32 {
	return []uint32{
		unix.SYS_FUTEX, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_NANOSLEEP, unix.SYS_EPOLL_PWAIT, unix.SYS_MADVISE, unix.SYS_MUNMAP,
		unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM, unix.SYS_SCHED_YIELD,
		unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
		unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_SCHED_GETAFFINITY, unix.SYS_MINCORE, unix.SYS_MREMAP, unix.SYS_BRK,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_CLOSE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	}
}

// filterCalls restricts all threads of this process to allowedCalls, memory that is not executable, new
// threads, and signals and limits of this process (seccomp(2)). Other calls fail with EPERM; clone3,
// whose flags a filter cannot read, with ENOSYS, so that libraries use clone. There is no filter on
// processors other than amd64 and arm64.
func filterCalls() error {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if arch == 0 {
		return nil
	}
	const (
		load, equal, and, end = unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, unix.BPF_JMP | unix.BPF_JEQ, unix.BPF_ALU | unix.BPF_AND, unix.BPF_RET
		number, architecture  = 0, 4 // offsets in struct seccomp_data
		allow, refuse         = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		processes             = unix.CLONE_VFORK | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
			unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	)
	filter := []unix.SockFilter{
		{Code: load, K: architecture}, {Code: equal, K: arch, Jt: 1}, {Code: end, K: unix.SECCOMP_RET_KILL_PROCESS},
		{Code: load, K: number}, {Code: equal, K: unix.SYS_CLONE3, Jf: 1}, {Code: end, K: unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)},
	}
	for _, call := range allowedCalls() {
		filter = append(filter, unix.SockFilter{Code: equal, K: call, Jf: 1}, unix.SockFilter{Code: end, K: allow})
	}
	// Calls that are allowed if the bits of a mask in the lower half of an argument have a value.
	for _, c := range []struct{ call, argument, mask, value uint32 }{
		{unix.SYS_MMAP, 2, unix.PROT_EXEC, 0},
		{unix.SYS_MPROTECT, 2, unix.PROT_EXEC, 0},
		{unix.SYS_CLONE, 0, unix.CLONE_THREAD | processes, unix.CLONE_THREAD},
		{unix.SYS_TGKILL, 0, ^uint32(0), uint32(os.Getpid())},
		{unix.SYS_PRLIMIT64, 0, ^uint32(0), 0},
	} {
		filter = append(filter, unix.SockFilter{Code: equal, K: c.call, Jf: 5}, unix.SockFilter{Code: load, K: 16 + 8*c.argument},
			unix.SockFilter{Code: and, K: c.mask}, unix.SockFilter{Code: equal, K: c.value, Jf: 1}, unix.SockFilter{Code: end, K: allow}, unix.SockFilter{Code: end, K: refuse})
	}
	filter = append(filter, unix.SockFilter{Code: end, K: refuse})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno != 0 || thread != 0 { // a thread has a filter that the others do not have
		return fmt.Errorf("restrict the system calls: %w, thread %d", errno, thread)
	}
	return nil
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
// open a file, socket or pipe, nor make a system call that is not in allowedCalls. A timer comes
// first, because the runtime opens files for that.
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
		unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0),
		filterCalls(),
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
	if err := unix.Prlimit(0, resource, nil, &now); err != nil {
		return err
	}
	limit = min(limit, now.Max) // a process cannot raise it
	return unix.Prlimit(0, resource, &unix.Rlimit{Cur: limit, Max: limit}, nil)
}
