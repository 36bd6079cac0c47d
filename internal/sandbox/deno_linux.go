package sandbox

import (
	"errors"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// outsideSpare is what a process that does not limit itself may have besides the heap of its
// engine and half as much again: stacks of threads, and the engine's books.
const outsideSpare = 96 << 20

// confine sets the limits of a child that does not set them itself, before it is given any
// code: the same as confine and limit. What it needs from then on is open. The memory is what
// it can write to; V8 reserves much more of the address space than that.
func (p *process) confine(memoryMB int, timeout time.Duration) error {
	if p.kind.confined {
		return nil
	}
	pid := p.cmd.Process.Pid
	proc := "/proc/" + strconv.Itoa(pid)
	_ = os.WriteFile(proc+"/oom_score_adj", []byte("1000"), 0)
	status, err := os.ReadFile(proc + "/status")
	if err != nil {
		return err
	}
	memory := int64(memoryMB+denoSpare) << 20
	seconds := 4*int64(timeout/time.Second) + 4 // it collects its garbage in several threads
	return errors.Join(
		ceilingOf(pid, unix.RLIMIT_CORE, 0),
		ceilingOf(pid, unix.RLIMIT_FSIZE, 0),
		ceilingOf(pid, unix.RLIMIT_NOFILE, 0),
		ceilingOf(pid, unix.RLIMIT_DATA, uint64(statusField(status, "VmData:")+memory+memory/2+outsideSpare)),
		ceilingOf(pid, unix.RLIMIT_CPU, uint64(seconds)),
	)
}

func ceilingOf(pid, resource int, most uint64) error {
	var now unix.Rlimit
	if err := unix.Prlimit(pid, resource, nil, &now); err != nil {
		return err
	}
	most = min(most, now.Max)
	return unix.Prlimit(pid, resource, &unix.Rlimit{Cur: most, Max: most}, nil)
}
