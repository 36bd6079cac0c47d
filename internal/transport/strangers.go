package transport

import (
	"net/netip"
	"sync"
)

// maxFromAfar is how many strangers there may be of one address on another machine, that
// of a subscriber.
const maxFromAfar = 8

// strangers counts the connections that have not said who they are. They cost nothing to
// make, so that whoever makes many must not keep the others out: each address on another
// machine has a few, and all of them together leave some for this one.
type strangers struct {
	most, mostFar int

	mu     sync.Mutex
	n, far int
	of     map[netip.Prefix]int // those on other machines
}

func newStrangers(most int) *strangers {
	return &strangers{most: most, mostFar: most - most/4, of: map[netip.Prefix]int{}}
}

// enter reports whether there is room for one more from somewhere, who leaves then.
func (s *strangers) enter(from origin) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= s.most {
		return false
	}
	if from.line.Remote {
		if s.far >= s.mostFar || s.of[from.subscriber] >= maxFromAfar {
			return false
		}
		s.far++
		s.of[from.subscriber]++
	}
	s.n++
	return true
}

func (s *strangers) leave(from origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if !from.line.Remote {
		return
	}
	s.far--
	if s.of[from.subscriber]--; s.of[from.subscriber] == 0 {
		delete(s.of, from.subscriber)
	}
}
