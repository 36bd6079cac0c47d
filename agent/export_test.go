package agent

import "time"

// Backoff sets the pauses between lines.
func (o *Options) Backoff(first, longest time.Duration) *Options {
	o.backoff, o.maxBackoff = first, longest
	return o
}

// Clock sets the cache's.
func (c *DirCache) Clock(now func() time.Time) { c.now = now }

// Clock sets the cache's.
func (c *MemoryCache) Clock(now func() time.Time) { c.now = now }
