package background

import (
	"context"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// memoryInterval is the interval at which ReleaseMemory checks the heap.
	memoryInterval = 5 * time.Second
	// minReleased is the minimum number of unused bytes that are released; quietRate is the maximum number
	// of bytes that an idle process allocates in an interval. Both grow with the heap.
	minReleased, quietRate = 16 << 20, 16 << 20
	// idleIntervals is the number of intervals for which the process must be idle, except after its start:
	// released memory costs time when it is used again.
	idleIntervals = 3
)

// ReleaseMemory returns unused memory to the operating system whenever the process is idle, until ctx
// ends. The start and bursts of connections or requests leave garbage, which an idle process does not
// collect: with GOGC 400 the heap may be five times as large as the memory in use. ReleaseMemory also
// unmaps the pages of files, which are mapped again when they are used.
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

// LimitGarbage makes the collector keep the heap below a number of bytes, or below twice its live
// size if that is more, whatever GOGC is.
func LimitGarbage(limit int64) {
	type object struct{ _ [16]byte }
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	var adjust func(*object) // runs after each collection
	adjust = func(o *object) {
		metrics.Read(live)
		debug.SetMemoryLimit(max(limit, 2*int64(live[0].Value.Uint64())))
		runtime.SetFinalizer(o, adjust)
	}
	adjust(&object{})
}
