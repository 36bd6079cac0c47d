package sandbox

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// protectProcess keeps the memory of this process from other processes of its user, and its open
// files from the programs that it starts. Go marks the files that it opens itself.
func protectProcess() error {
	files, err := os.ReadDir("/proc/self/fd")
	for _, file := range files {
		if fd, err := strconv.Atoi(file.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return errors.Join(err, unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0))
}

// restrictThread restricts this thread and the programs that it starts: they gain no privileges
// (prctl(2)), lose all capabilities (capabilities(7)), and do not change directories, connect over
// TCP, or trace or signal other processes (landlock(7)). A kernel or container may refuse all but
// the first; filterCalls does not depend on them.
func restrictThread() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	for capability := uintptr(0); unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0) == nil; capability++ {
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var capabilities [2]unix.CapUserData
	if unix.Capget(&header, &capabilities[0]) == nil {
		capabilities[0].Inheritable, capabilities[1].Inheritable = 0, 0
		_ = unix.Capset(&header, &capabilities[0])
	}
	// The child starts this program and reads files below /proc, so these accesses are not restricted.
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

// allowedCall is a system call that a confined child may make. With a mask, it may do so only if
// these bits of one argument have the value.
type allowedCall struct {
	number, argument, mask, value uint32
}

// allowedCalls are the system calls of the runtimes of Go and C, reading and writing of open files,
// and lower limits. Memory is never executable, and a new thread is part of this process.
func allowedCalls() []allowedCall {
	const clone = unix.CLONE_THREAD | unix.CLONE_VFORK | unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET
	var calls []allowedCall
	for _, number := range []uint32{
		unix.SYS_FUTEX, unix.SYS_READ, unix.SYS_WRITE, unix.SYS_NANOSLEEP, unix.SYS_EPOLL_PWAIT, unix.SYS_MADVISE, unix.SYS_MUNMAP,
		unix.SYS_CLOCK_GETTIME, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_GETTIMEOFDAY, unix.SYS_GETRANDOM, unix.SYS_SCHED_YIELD,
		unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
		unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_SCHED_GETAFFINITY, unix.SYS_MINCORE, unix.SYS_MREMAP, unix.SYS_BRK,
		unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_CLOSE, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	} {
		calls = append(calls, allowedCall{number: number})
	}
	return append(calls,
		allowedCall{unix.SYS_MMAP, 2, unix.PROT_EXEC, 0},
		allowedCall{unix.SYS_MPROTECT, 2, unix.PROT_EXEC, 0},
		allowedCall{unix.SYS_CLONE, 0, clone, unix.CLONE_THREAD},
		allowedCall{unix.SYS_TGKILL, 0, ^uint32(0), uint32(os.Getpid())},
		allowedCall{unix.SYS_PRLIMIT64, 0, ^uint32(0), 0},
	)
}

// filterCalls restricts all threads of this process to allowedCalls (seccomp(2)). Other calls fail
// with EPERM; clone3, whose flags a filter cannot read, with ENOSYS, so that libraries use clone. It
// does nothing on processors for which comet is not released.
func filterCalls() error {
	arch := map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]
	if arch == 0 {
		return nil
	}
	// Offsets in struct seccomp_data; only the lower half of an argument matters.
	const number, architecture, arguments = 0, 4, 16
	load := func(offset uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offset}
	}
	unless := func(value uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: skip, K: value}
	}
	end := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	filter := []unix.SockFilter{
		load(architecture), {Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: arch}, end(unix.SECCOMP_RET_KILL_PROCESS),
		load(number), unless(unix.SYS_CLONE3, 1), end(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)),
	}
	refuse := end(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
	for _, c := range allowedCalls() {
		if c.mask == 0 {
			filter = append(filter, unless(c.number, 1), end(unix.SECCOMP_RET_ALLOW))
			continue
		}
		filter = append(filter, unless(c.number, 5), load(arguments+8*c.argument),
			unix.SockFilter{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: c.mask}, unless(c.value, 1), end(unix.SECCOMP_RET_ALLOW), refuse)
	}
	filter = append(filter, refuse)
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	switch {
	case errno != 0:
		return fmt.Errorf("restrict the system calls: %w", errno)
	case thread != 0:
		return fmt.Errorf("restrict the system calls: thread %d has another filter", thread)
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
