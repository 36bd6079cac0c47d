package transport

import (
	"net/netip"
	"sync"
)

// maxPerRemotePrefix is how many strangers there may be of one address on another machine, that
// of a subscriber.
const maxPerRemotePrefix = 8

// anonymousLimiter counts the connections that have not said who they are. They cost nothing to
// make, so that whoever makes many must not keep the others out: each address on another
// machine has a few, and all of them together leave some for this one.
type anonymousLimiter struct {
	max, maxRemote int

	mu            sync.Mutex
	count, remote int
	byPrefix      map[netip.Prefix]int // those on other machines
}

func newAnonymousLimiter(most int) *anonymousLimiter {
	return &anonymousLimiter{max: most, maxRemote: most - most/4, byPrefix: map[netip.Prefix]int{}}
}

// acquire reports whether there is room for one more from somewhere, who leaves then.
func (s *anonymousLimiter) acquire(from origin) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count >= s.max {
		return false
	}
	if from.conn.Remote {
		if s.remote >= s.maxRemote || s.byPrefix[from.prefix] >= maxPerRemotePrefix {
			return false
		}
		s.remote++
		s.byPrefix[from.prefix]++
	}
	s.count++
	return true
}

func (s *anonymousLimiter) release(from origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count--
	if !from.conn.Remote {
		return
	}
	s.remote--
	if s.byPrefix[from.prefix]--; s.byPrefix[from.prefix] == 0 {
		delete(s.byPrefix, from.prefix)
	}
}
