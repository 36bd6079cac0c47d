package bus

import (
	"context"
	"slices"
	"sync"

	"comet/internal/background"
)

// Gap reports that messages may be missing: users that rely on wake-ups read SQL again.
type Gap struct {
	// Reason is the cause.
	Reason Reason
	// Subject is that of the affected subscription, "" for all.
	Subject string
}

// Reason is why messages may be missing.
type Reason string

// Reasons of gaps.
const (
	// Reconnected means that a connection was lost and made again, or was first made some time
	// after Start.
	Reconnected Reason = "reconnected"
	// OthersReconnected means that another replica has reconnected: the messages that it published
	// meanwhile may be lost.
	OthersReconnected Reason = "others-reconnected"
	// Dropped means that a handler was too slow. It is reported at the first dropped message, and
	// again when the handler has processed its backlog.
	Dropped Reason = "dropped"
)

// gaps reports gaps to listeners.
type gaps struct {
	*background.Loop
	// settle is called before a gap is reported with the reason Reconnected.
	settle func(context.Context)
	added  background.Signal

	mu        sync.Mutex
	listeners []*func(Gap)
	pending   []Gap
}

func newGaps(settle func(context.Context)) *gaps {
	g := &gaps{settle: settle, added: background.NewSignal()}
	g.Loop = background.NewLoop(g.run)
	return g
}

// add adds a listener, which stop removes.
func (g *gaps) add(fn func(Gap)) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	listener := &fn
	g.listeners = append(g.listeners, listener)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.listeners = slices.DeleteFunc(slices.Clone(g.listeners), func(l *func(Gap)) bool { return l == listener })
	}
}

// report reports a gap later, once while it is pending.
func (g *gaps) report(gap Gap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.pending, gap) {
		g.pending = append(g.pending, gap)
		g.added.Set()
	}
}

// run reports gaps until ctx ends.
func (g *gaps) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.added:
		}
		g.mu.Lock()
		pending := g.pending
		g.pending = nil
		g.mu.Unlock()
		for _, gap := range pending {
			g.notify(ctx, gap)
		}
	}
}

func (g *gaps) notify(ctx context.Context, gap Gap) {
	if gap.Reason == Reconnected {
		g.settle(ctx)
	}
	g.mu.Lock()
	listeners := g.listeners
	g.mu.Unlock()
	for _, fn := range listeners {
		if ctx.Err() != nil {
			return
		}
		(*fn)(gap)
	}
}
