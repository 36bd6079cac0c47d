package sandbox

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// spare is what a child needs besides the engine's memory: Go's own heap grows in pieces of
// 64 MiB, and a frame is held more than once.
const spare = 256<<20 + forRaces

// confine takes away from this process what a child does not need, and returns how much
// memory it has by now. Afterwards it can open nothing: no file, no socket, no pipe. What
// the runtime wants to open must be open before, which is why a timer is set.
func confine() (base int64, err error) {
	time.NewTimer(time.Hour).Stop()
	// Where memory is short, this is what the system should end. It may forbid saying so.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("1000"), 0)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	return statusField(status, "VmData:"), errors.Join(
		ceiling(unix.RLIMIT_CORE, 0),
		ceiling(unix.RLIMIT_FSIZE, 0),
		ceiling(unix.RLIMIT_NOFILE, 0),
	)
}

// limit sets what the kernel stops the process at: above what the engine allows, so that the
// engine is first and says so. An array that grows is held twice for a moment, hence half as
// much again.
func limit(base int64, memoryMB int, timeout time.Duration) error {
	memory := int64(memoryMB) << 20
	// The processor time of a run that is stopped in time: one thread runs the code, another
	// one may collect what Go's part leaves.
	seconds := 2*int64(timeout/time.Second) + 3
	return errors.Join(
		ceiling(unix.RLIMIT_DATA, uint64(base+memory+memory/2+spare)),
		ceiling(unix.RLIMIT_CPU, uint64(seconds)),
	)
}

func ceiling(resource int, most uint64) error {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return err
	}
	most = min(most, now.Max) // it cannot be raised
	return unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most})
}
