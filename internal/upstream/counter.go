package upstream

import (
	"fmt"
	"sync"

	"comet/internal/words"
)

// maxSample is how much of something that is no message is shown, in bytes.
const maxSample = 120

// invalidMessages counts what an upstream sent that is no message of the protocol, and keeps the
// beginning of the first.
type invalidMessages struct {
	mu     sync.Mutex
	n      int64
	sample string
}

func (c *invalidMessages) add(sample string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.sample == "" {
		c.sample = sample
	}
}

// warning is a sentence for a person, "" where there was nothing.
func (c *invalidMessages) warning(s *secrets) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return ""
	}
	text := fmt.Sprintf("%d lines or events that are no messages of the protocol were dropped", c.n)
	if c.n == 1 {
		text = "a line or an event that is no message of the protocol was dropped"
	}
	if c.sample != "" {
		text += ", the first began with " + words.Quote(s.mask(c.sample))
	}
	return text
}
