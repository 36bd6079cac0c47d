package upstream

import "sync"

// staleLists remembers which lists have to be read again.
type staleLists struct {
	wake  chan struct{}
	mu    *sync.Mutex
	kinds map[ChangeKind]bool
}

func newStaleLists() staleLists {
	return staleLists{wake: make(chan struct{}, 1), mu: &sync.Mutex{}, kinds: map[ChangeKind]bool{}}
}

func (s *staleLists) mark(kinds ...ChangeKind) {
	s.mu.Lock()
	for _, k := range kinds {
		s.kinds[k] = true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// take returns what was marked since.
func (s *staleLists) take() map[ChangeKind]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.kinds
	s.kinds = map[ChangeKind]bool{}
	return taken
}
