//go:build unix

package bench

import (
	"syscall"
	"time"
)

// processorTime returns the processor time this process has used since its start.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
