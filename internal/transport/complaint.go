package transport

import (
	"sync"
	"time"
)

// logInterval is how long nothing is said of something that goes on.
const logInterval = time.Minute

// logThrottle is what may happen far more often than anybody wants to read of it. The zero
// value has not happened yet. It is safe for concurrent use.
type logThrottle struct {
	mu         sync.Mutex
	suppressed int
	next       time.Time
}

// allow counts that it happened, and reports whether it is time to say so; n is how often
// it has happened since that was said last.
func (c *logThrottle) allow(now time.Time) (n int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.suppressed++
	if now.Before(c.next) {
		return c.suppressed, false
	}
	n, c.suppressed, c.next = c.suppressed, 0, now.Add(logInterval)
	return n, true
}
