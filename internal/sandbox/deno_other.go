//go:build !linux

package sandbox

import "time"

// confine has no counterpart here: a process cannot be limited by another.
func (p *process) confine(int, time.Duration) error { return nil }
