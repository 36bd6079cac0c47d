package upstream

import (
	"context"
	"slices"
	"sync"

	"comet/internal/lifecycle"
)

// ChangeKind says what changed.
type ChangeKind string

// What can change.
const (
	Up              ChangeKind = "up"
	Down            ChangeKind = "down"
	Tools           ChangeKind = "tools"
	Resources       ChangeKind = "resources" // or the templates of resources
	Prompts         ChangeKind = "prompts"
	ResourceUpdated ChangeKind = "resource_updated"
)

// Change is something that happened at an upstream.
type Change struct {
	Server string
	Kind   ChangeKind
	// URI is the resource of ResourceUpdated.
	URI string
}

// maxPending is how many different changes wait to be told.
const maxPending = 10_000

// changeNotifier tells changes from a goroutine of its own, so that whoever listens holds up
// nothing. Equal ones that wait are told once, at the place of the last, so that what is
// told last is how things are.
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

// run ends with its context, after what has been added before.
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
