package bus

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"comet/internal/background"
)

// gaps notifies listeners that messages may be missing.
type gaps struct {
	*background.Loop
	// settle is called before listeners are notified of a reconnection.
	settle func(context.Context)
	added  background.Signal
	// reconnected is set if settle must be called.
	reconnected atomic.Bool

	mu        sync.Mutex
	listeners []*func()
}

// add adds a listener, which stop removes.
func (g *gaps) add(fn func()) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	listener := &fn
	g.listeners = append(g.listeners, listener)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.listeners = slices.DeleteFunc(slices.Clone(g.listeners), func(l *func()) bool { return l == listener })
	}
}

// report reports a gap later, once while it is pending.
func (g *gaps) report() { g.added.Set() }

// run reports gaps until ctx ends.
func (g *gaps) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.added:
		}
		if g.reconnected.Swap(false) {
			g.settle(ctx)
		}
		g.mu.Lock()
		listeners := g.listeners
		g.mu.Unlock()
		for _, fn := range listeners {
			if ctx.Err() != nil {
				return
			}
			(*fn)()
		}
	}
}

// loss tracks messages that were dropped because a subscription's handler was too slow.
type loss struct {
	counted    int  // messages counted so far
	unreported bool // dropped since the last report
	backlogged bool // dropped since the backlog was last empty
	handled    int  // messages handled since the last report
}

// update takes the number of messages dropped so far and the number waiting. It returns how many
// were dropped since the last call, and whether to report them: at the first one, when the backlog
// has been handled, and every limit handled messages in between.
func (l *loss) update(dropped, waiting, limit int) (lost int, isDue bool) {
	lost = dropped - l.counted
	l.counted = dropped
	l.unreported = l.unreported || lost > 0
	isDue = l.unreported && (!l.backlogged || waiting == 0 || l.handled >= limit)
	l.backlogged = waiting > 0 && (l.backlogged || lost > 0)
	if isDue {
		l.unreported, l.handled = false, 0
	}
	return lost, isDue
}
