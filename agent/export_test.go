package agent

import "time"

// Backoff sets the pauses between connections.
func (o *Options) Backoff(first, longest time.Duration) *Options {
	o.backoff, o.maxBackoff = first, longest
	return o
}

// Clock replaces the clock of the cache.
func (c *DirCache) Clock(now func() time.Time) { c.now = now }
