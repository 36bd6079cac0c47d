package upstream

import (
	"context"

	"comet/internal/background"
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

// maxPending limits the distinct changes that wait for delivery. Further updates of resources are
// dropped.
const maxPending = 10_000

// changeNotifier calls notify from its own goroutine, so that a slow receiver blocks no upstream.
// Equal pending changes are merged into the last one, so that the last notification describes the
// current state.
type changeNotifier struct {
	*background.Loop
	notify  func(Change)
	pending *background.Pending[Change]
}

func newChangeNotifier(notify func(Change)) *changeNotifier {
	t := &changeNotifier{notify: notify, pending: background.NewPending[Change]()}
	t.Loop = background.NewLoop(t.run)
	return t
}

func (t *changeNotifier) enqueue(c Change) {
	if c.Kind != ResourceUpdated || t.pending.Len() < maxPending {
		t.pending.Add(c)
	}
}

// run delivers changes until ctx ends, then those that are still pending.
func (t *changeNotifier) run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-t.pending.Signal:
		case <-ctx.Done():
		}
		for _, c := range t.pending.Take() {
			t.notify(c)
		}
	}
}
