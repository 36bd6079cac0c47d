//go:build unix

package program

import (
	"os"
	"runtime"
	"syscall"
)

// exitStatus is the exit code as in shells: 128 and the number of a signal.
func exitStatus(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

// maxMemory is the peak memory of the process and of those it waited for, in bytes.
func maxMemory(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	if !ok {
		return 0
	}
	if runtime.GOOS == "darwin" || runtime.GOOS == "ios" {
		return int64(usage.Maxrss) //nolint:unconvert // it has 32 bits on some systems
	}
	return int64(usage.Maxrss) << 10 //nolint:unconvert // the same
}
