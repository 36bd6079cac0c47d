package upstream

import (
	"context"
	"slices"
	"sync"

	"comet/internal/lifecycle"
)

// ChangeKind is the kind of a change.
type ChangeKind string

// The kinds of changes.
const (
	Up              ChangeKind = "up"
	Down            ChangeKind = "down"
	Tools           ChangeKind = "tools"
	Resources       ChangeKind = "resources" // or the templates of resources
	Prompts         ChangeKind = "prompts"
	ResourceUpdated ChangeKind = "resource_updated"
)

// Change is a change of an upstream.
type Change struct {
	Server string
	Kind   ChangeKind
	// URI is the resource of ResourceUpdated.
	URI string
}

// maxPending limits the distinct changes that wait for delivery.
const maxPending = 10_000

// changeNotifier calls notify from its own goroutine, so that a slow receiver blocks no upstream.
// Equal pending changes are merged into the last one, so that the last notification describes the
// current state.
type changeNotifier struct {
	*lifecycle.Loop
	notify func(Change)
	wake   chan struct{}

	mu      sync.Mutex
	seq     int
	pending map[Change]int
}

func newChangeNotifier(tell func(Change)) *changeNotifier {
	t := &changeNotifier{notify: tell, wake: make(chan struct{}, 1), pending: map[Change]int{}}
	t.Loop = lifecycle.NewLoop(t.run)
	return t
}

func (t *changeNotifier) enqueue(c Change) {
	t.mu.Lock()
	if _, waits := t.pending[c]; waits || len(t.pending) < maxPending || c.Kind != ResourceUpdated {
		t.seq++
		t.pending[c] = t.seq
	}
	t.mu.Unlock()
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// run delivers changes until ctx ends, then those that are still pending.
func (t *changeNotifier) run(ctx context.Context) {
	for {
		select {
		case <-t.wake:
			t.flush()
		case <-ctx.Done():
			t.flush()
			return
		}
	}
}

func (t *changeNotifier) flush() {
	t.mu.Lock()
	pending := t.pending
	t.pending = map[Change]int{}
	t.mu.Unlock()
	changes := make([]Change, 0, len(pending))
	for c := range pending {
		changes = append(changes, c)
	}
	slices.SortFunc(changes, func(a, b Change) int { return pending[a] - pending[b] })
	for _, c := range changes {
		t.notify(c)
	}
}

// staleLists records which lists must be read again.
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

// take returns the marked lists and clears the marks.
func (s *staleLists) take() map[ChangeKind]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.kinds
	s.kinds = map[ChangeKind]bool{}
	return taken
}
