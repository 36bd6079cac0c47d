package transport

import (
	"sync"
	"time"
)

// complaintPause is how long nothing is said of something that goes on.
const complaintPause = time.Minute

// complaint is what may happen far more often than anybody wants to read of it. The zero
// value has not happened yet. It is safe for concurrent use.
type complaint struct {
	mu   sync.Mutex
	n    int
	next time.Time
}

// due counts that it happened, and reports whether it is time to say so; n is how often
// it has happened since that was said last.
func (c *complaint) due(now time.Time) (n int, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
	if now.Before(c.next) {
		return c.n, false
	}
	n, c.n, c.next = c.n, 0, now.Add(complaintPause)
	return n, true
}
