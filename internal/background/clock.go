package background

import (
	"sync"
	"time"
)

// SteadyClock returns a clock that follows the wall clock and never goes back. While the wall clock is
// behind, because it was set back, the clock advances by the elapsed time.
func SteadyClock(wall func() time.Time, elapsed func() time.Duration) func() time.Time {
	var mu sync.Mutex
	var base time.Time
	var at time.Duration
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		now := elapsed()
		if t := wall().Round(0); t.After(base.Add(now - at)) {
			base, at = t, now
		}
		return base.Add(now - at)
	}
}
