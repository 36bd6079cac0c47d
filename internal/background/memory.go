package background

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryInterval is how often ReleaseMemory looks at the heap.
	memoryInterval = 5 * time.Second
	// minReleased is the number of unused bytes from which on it is released; quietRate is the number
	// of bytes allocated in an interval up to which the process is idle. Both grow with the heap.
	minReleased, quietRate = 16 << 20, 16 << 20
	// idleIntervals is for how many intervals the process must be idle, except after its start: returned
	// memory costs time when it is used again.
	idleIntervals = 3
)

// ReleaseMemory returns unused memory to the operating system whenever the process is idle, until ctx
// ends. The start, a storm of connections and a burst of requests leave garbage behind, and an idle
// process does not collect it: with GOGC 400 the heap may have five times the size that is in use. It
// also unmaps the pages of files that were used only then.
func ReleaseMemory(ctx context.Context) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"},
		{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"},
	}
	allocatedBefore, idle, released := uint64(0), 0, false
	for Sleep(ctx, memoryInterval) == nil {
		metrics.Read(samples)
		value := func(i int) uint64 { return samples[i].Value.Uint64() }
		allocated, live := value(0)-allocatedBefore, value(1)
		allocatedBefore = value(0)
		if idle++; !isIdle(allocated, live) {
			idle = 0
		}
		if unused := value(2) + value(3) + value(4) - live; idle > 0 && !released || idle >= idleIntervals && unused > max(minReleased, live/2) {
			debug.FreeOSMemory()
			unmapFilePages()
			released = true
		}
	}
}

// isIdle reports whether a process with live bytes in use allocated little in an interval.
func isIdle(allocated, live uint64) bool { return allocated < max(quietRate, live/4) }
