package sandbox_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"comet/internal/sandbox"
)

// targets is what native code attacks.
type targets struct {
	Dir     string // has the file "file" and the empty directory "empty"
	Process int    // another process of the same user
	Parent  int
	Memory  uintptr // of Secret in the parent
	File    int     // a file descriptor that is open in the parent
}

const secret = "a token in the memory of the server"

// attack is a system call that the code of a sandbox must not be able to make. An attack with
// unconfined set succeeds in every process that is not confined.
type attack struct {
	name       string
	unconfined bool
	do         func(t targets, dir string) error
}

func call(number uintptr, args ...uintptr) error {
	args = append(args, 0, 0, 0, 0, 0, 0)
	if _, _, errno := syscall.RawSyscall6(number, args[0], args[1], args[2], args[3], args[4], args[5]); errno != 0 {
		return errno
	}
	return nil
}

// fork returns only in the parent.
func fork(number uintptr, args ...uintptr) error {
	args = append(args, 0, 0)
	pid, _, errno := syscall.RawSyscall(number, args[0], args[1], 0)
	if pid == 0 && errno == 0 {
		_, _, _ = syscall.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

func opened(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func attacks() []attack {
	clone3 := [11]uint64{4: uint64(unix.SIGCHLD)}
	argv := []*byte{nil}
	program := []byte("/proc/self/exe\x00")
	one := []byte{0}
	return []attack{
		{"change the mode of a file", true, func(_ targets, dir string) error { return unix.Chmod(dir+"/file", 0o777) }},
		{"truncate a file", true, func(_ targets, dir string) error { return unix.Truncate(dir+"/file", 1) }},
		{"change the times of a file", true, func(_ targets, dir string) error { return unix.Utimes(dir+"/file", make([]unix.Timeval, 2)) }},
		{"make a directory", true, func(_ targets, dir string) error { return unix.Mkdir(dir+"/made", 0o777) }},
		{"make a symbolic link", true, func(_ targets, dir string) error { return unix.Symlink("file", dir+"/symlink") }},
		{"make a hard link", true, func(_ targets, dir string) error { return unix.Link(dir+"/file", dir+"/link") }},
		{"make a named pipe", true, func(_ targets, dir string) error { return unix.Mkfifo(dir+"/pipe", 0o777) }},
		{"rename a file", true, func(_ targets, dir string) error { return unix.Rename(dir+"/file", dir+"/renamed") }},
		{"read a file", true, func(_ targets, dir string) error { return opened(unix.Open(dir+"/renamed", unix.O_RDONLY, 0)) }},
		{"read the original file", false, func(_ targets, dir string) error { return opened(unix.Open(dir+"/file", unix.O_RDONLY, 0)) }},
		{"create a file", true, func(_ targets, dir string) error {
			return opened(unix.Open(dir+"/created", unix.O_CREAT|unix.O_WRONLY, 0o666))
		}},
		{"delete a file", true, func(_ targets, dir string) error { return unix.Unlink(dir + "/renamed") }},
		{"delete the original file", false, func(_ targets, dir string) error { return unix.Unlink(dir + "/file") }},
		{"delete a directory", true, func(_ targets, dir string) error { return unix.Rmdir(dir + "/empty") }},
		{"change the directory", true, func(_ targets, dir string) error { return unix.Chdir(dir) }},
		{"lock or change a descriptor", true, func(targets, string) error { _, err := unix.FcntlInt(0, unix.F_GETFL, 0); return err }},
		{"query another process", true, func(t targets, _ string) error { return unix.Kill(t.Process, 0) }},
		{"signal a thread of another process", true, func(t targets, _ string) error { return unix.Tgkill(t.Process, t.Process, unix.SIGCONT) }},
		{"kill another process", true, func(t targets, _ string) error { return unix.Kill(t.Process, unix.SIGKILL) }},
		{"kill the process group", false, func(targets, string) error { return unix.Kill(0, unix.SIGCONT) }},
		{"open another process", true, func(t targets, _ string) error { return opened(unix.PidfdOpen(t.Process, 0)) }},
		{"limit the parent", false, func(t targets, _ string) error {
			return unix.Prlimit(t.Parent, unix.RLIMIT_CORE, nil, &unix.Rlimit{})
		}},
		{"read the memory of the parent", false, func(t targets, _ string) error {
			found := make([]byte, len(secret))
			local := []unix.Iovec{{Base: &found[0], Len: uint64(len(found))}}
			_, err := unix.ProcessVMReadv(t.Parent, local, []unix.RemoteIovec{{Base: t.Memory, Len: len(found)}}, 0)
			return err
		}},
		{"open the memory of the parent", false, func(t targets, _ string) error {
			return opened(unix.Open("/proc/"+strconv.Itoa(t.Parent)+"/mem", unix.O_RDONLY, 0))
		}},
		{"trace the parent", false, func(t targets, _ string) error { return unix.PtraceSeize(t.Parent) }},
		{"trace another process", false, func(t targets, _ string) error { return unix.PtraceSeize(t.Process) }},
		{"read an inherited file", false, func(t targets, _ string) error { _, err := unix.Read(t.File, one); return err }},
		{"read an inherited file at a position", false, func(t targets, _ string) error { _, err := unix.Pread(t.File, one, 0); return err }},
		{"open a TCP socket", true, func(targets, string) error { return opened(unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)) }},
		{"open a UNIX socket", true, func(targets, string) error { return opened(unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)) }},
		{"open a netlink socket", false, func(targets, string) error { return opened(unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, 0)) }},
		{"open a pair of sockets", true, func(targets, string) error { _, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); return err }},
		{"open a pipe", true, func(targets, string) error { return unix.Pipe2(make([]int, 2), 0) }},
		{"open a file in memory", true, func(targets, string) error { return opened(unix.MemfdCreate("x", 0)) }},
		{"duplicate a descriptor", true, func(targets, string) error { return opened(unix.Dup(0)) }},
		{"use io_uring", false, func(targets, string) error { return call(unix.SYS_IO_URING_SETUP, 1, 0) }},
		{"use BPF", false, func(targets, string) error { return call(unix.SYS_BPF, 0, 0, 0) }},
		{"use shared memory", false, func(targets, string) error { return call(unix.SYS_SHMGET, unix.IPC_PRIVATE, 4096, 0o600) }},
		{"map executable memory", false, func(targets, string) error {
			return call(unix.SYS_MMAP, 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, ^uintptr(0), 0)
		}},
		{"make memory executable", false, func(targets, string) error {
			page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				return nil //nolint:nilerr // mapping memory must work
			}
			return unix.Mprotect(page, unix.PROT_READ|unix.PROT_EXEC)
		}},
		{"make the process readable", true, func(targets, string) error { return unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0) }},
		{"enter namespaces", false, func(targets, string) error { return call(unix.SYS_UNSHARE, unix.CLONE_NEWUSER) }},
		{"mount a file system", false, func(_ targets, dir string) error { return unix.Mount("none", dir, "tmpfs", 0, "") }},
		{"become another user", false, func(targets, string) error { return call(unix.SYS_SETUID, 65534) }},
		{"fork", true, func(targets, string) error { return fork(unix.SYS_CLONE, uintptr(unix.SIGCHLD)) }},
		{"fork with clone3", false, func(targets, string) error {
			return fork(unix.SYS_CLONE3, uintptr(unsafe.Pointer(&clone3)), unsafe.Sizeof(clone3))
		}},
		{"execute a program", false, func(targets, string) error {
			return call(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&program[0])), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&argv[0])))
		}},
		{"execute a program of a directory", false, func(targets, string) error {
			return call(unix.SYS_EXECVEAT, ^uintptr(99), uintptr(unsafe.Pointer(&program[0])), uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&argv[0])), 0)
		}},
	}
}

// report is what native code did: the errors by the name of the attack, empty after a success.
type report struct {
	Errors      map[string]string
	Environment []string
	Dir         string
}

// init acts as native code that controls a child: "unconfined", only with the filter of system
// calls ("filtered"), only with what the sandbox restricts ("restricted"), or with both ("child").
func init() {
	if len(os.Args) != 4 || os.Args[1] != "native-code" {
		return
	}
	var t targets
	if err := json.Unmarshal([]byte(os.Args[3]), &t); err != nil {
		panic(err)
	}
	r := report{Errors: map[string]string{}, Environment: os.Environ()}
	r.Dir, _ = os.Getwd()
	all := attacks()
	switch os.Args[2] {
	case "unconfined", "restricted":
		all = slices.DeleteFunc(all, func(a attack) bool { return !a.unconfined })
	case "filtered":
		must(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		fallthrough
	case "child":
		must(sandbox.ConfineChild())
	}
	inSandbox := os.Args[2] == "child" || os.Args[2] == "restricted"
	if inSandbox {
		writeFrame('B', []byte("{}"))
		_, _ = io.ReadFull(os.Stdin, make([]byte, 5)) // the run has begun
	}
	runtime.LockOSThread()
	for _, a := range all {
		r.Errors[a.name] = ""
		if err := a.do(t, t.Dir); err != nil {
			r.Errors[a.name] = err.Error()
		}
	}
	runtime.UnlockOSThread()
	workAsAChild()
	body, err := json.Marshal(r)
	must(err)
	if inSandbox {
		writeFrame('D', []byte(`{"value":`+string(body)+`}`))
		_, _ = io.Copy(io.Discard, os.Stdin)
	} else {
		_, _ = os.Stdout.Write(body)
	}
	os.Exit(0) //nolint:forbidigo // this is the main function of a process
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func writeFrame(kind byte, body []byte) {
	head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
	_, _ = os.Stdout.Write(append(append(head, kind), body...))
}

// workAsAChild does what the runtime of Go needs system calls for: threads, a larger heap, garbage
// collection and preemption.
func workAsAChild() {
	done := make(chan struct{})
	for range 8 {
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			kept := make([][]byte, 0, 100)
			for range cap(kept) {
				kept = append(kept, make([]byte, 64<<10))
			}
			runtime.GC()
			runtime.KeepAlive(kept)
			done <- struct{}{}
		}()
	}
	for range 8 {
		<-done
	}
}

// attacked returns new targets of this process.
func attacked(t *testing.T, memory []byte) targets {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "empty"), 0o700))
	process := exec.CommandContext(t.Context(), "/bin/sleep", "1000")
	require.NoError(t, process.Start())
	t.Cleanup(func() {
		_ = process.Process.Kill()
		_ = process.Wait()
	})
	file, err := os.Open(filepath.Join(dir, "file"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD, 500) // programs inherit it
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return targets{dir, process.Process.Pid, os.Getpid(), uintptr(unsafe.Pointer(&memory[0])), fd}
}

// requireUnharmed requires that every attack failed and changed nothing.
func requireUnharmed(t *testing.T, to targets, r report) {
	t.Helper()
	require.Len(t, r.Errors, len(attacks()))
	for name, failed := range r.Errors {
		require.NotEmpty(t, failed, name)
	}
	require.Equal(t, unix.ENOSYS.Error(), r.Errors["fork with clone3"])
	entries, err := os.ReadDir(to.Dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	info, err := os.Stat(filepath.Join(to.Dir, "file"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode())
	require.EqualValues(t, len("content"), info.Size())
	require.NoError(t, syscall.Kill(to.Process, 0))
	require.False(t, isZombie(to.Process))
}

// TestNativeCode runs native code, as if it had taken over the engine, where the code of a run is.
func TestNativeCode(t *testing.T) { //nolint:paralleltest // its inherited file is not for other children
	memory := []byte(secret)
	defer runtime.KeepAlive(memory)
	direct := func(t *testing.T, mode string, to targets) report {
		arg, err := json.Marshal(to)
		require.NoError(t, err)
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "native-code", mode, string(arg))
		cmd.Stderr = t.Output()
		out, err := cmd.Output()
		require.NoError(t, err)
		var r report
		require.NoError(t, json.Unmarshal(out, &r), "%s", out)
		return r
	}
	t.Run("the attacks work without confinement", func(t *testing.T) {
		for name, failed := range direct(t, "unconfined", attacked(t, memory)).Errors {
			require.Empty(t, failed, name)
		}
	})
	t.Run("the filter of system calls is enough", func(t *testing.T) {
		to := attacked(t, memory)
		to.File = 1000 // only the sandbox closes files
		requireUnharmed(t, to, direct(t, "filtered", to))
	})
	sandboxed := func(t *testing.T, mode string, to targets) (r report) {
		arg, err := json.Marshal(to)
		require.NoError(t, err)
		s := started(t, &sandbox.Options{Command: []string{"/proc/self/exe", "native-code", mode, string(arg)}})
		require.NoError(t, json.Unmarshal([]byte(run(t, s, "1")), &r))
		return r
	}
	if call(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION) == nil { // some kernels and containers have none
		t.Run("landlock refuses changes of files", func(t *testing.T) {
			r := sandboxed(t, "restricted", attacked(t, memory))
			for _, name := range []string{"make a directory", "make a symbolic link", "rename a file", "create a file", "delete a directory"} {
				require.Contains(t, []string{unix.EACCES.Error(), unix.EXDEV.Error()}, r.Errors[name], name)
			}
		})
	}
	t.Run("in a child", func(t *testing.T) {
		to := attacked(t, memory)
		r := sandboxed(t, "child", to)
		requireUnharmed(t, to, r)
		require.Equal(t, unix.EBADF.Error(), r.Errors["read an inherited file"])
		require.Equal(t, []string{"TZ=UTC", "GODEBUG=containermaxprocs=0", fmt.Sprint("GOMAXPROCS=", runtime.GOMAXPROCS(0))}, r.Environment)
		require.Equal(t, "/", r.Dir)
		dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
		require.NoError(t, err)
		require.Zero(t, dumpable, "the memory of the server is private")
	})
	if os.Getuid() != 0 {
		return
	}
	t.Run("as an unprivileged user", func(t *testing.T) {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^(TestNativeCode|TestChildIsConfined)$")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		cmd.Dir = "/"
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
	})
}
