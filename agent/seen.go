package agent

import (
	"sync"

	"github.com/google/uuid"
)

// seenMessages is how many messages are remembered, so that one that comes again after
// a line broke counts once.
const seenMessages = 8192

// seen remembers the newest ids it was asked about.
type seen struct {
	mu   sync.Mutex
	all  map[uuid.UUID]struct{}
	ring []uuid.UUID
	next int
}

func newSeen(n int) *seen {
	return &seen{all: make(map[uuid.UUID]struct{}), ring: make([]uuid.UUID, n)}
}

// before reports whether the id was asked about before.
func (s *seen) before(id uuid.UUID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[id]; ok {
		return true
	}
	delete(s.all, s.ring[s.next])
	s.ring[s.next] = id
	s.all[id] = struct{}{}
	s.next = (s.next + 1) % len(s.ring)
	return false
}

// acks gathers what is to be acknowledged. What is lost with a line is asked for by the
// message coming again.
type acks struct {
	mu   sync.Mutex
	ids  []uuid.UUID
	news chan struct{} // one token when there are some
}

func newAcks() *acks { return &acks{news: make(chan struct{}, 1)} }

func (a *acks) add(ids ...uuid.UUID) {
	if len(ids) == 0 {
		return
	}
	a.mu.Lock()
	a.ids = append(a.ids, ids...)
	a.mu.Unlock()
	select {
	case a.news <- struct{}{}:
	default:
	}
}

// take returns what has gathered.
func (a *acks) take() []uuid.UUID {
	a.mu.Lock()
	defer a.mu.Unlock()
	ids := a.ids
	a.ids = nil
	return ids
}
