package bus

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"comet/internal/lifecycle"
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
	// OthersReconnected is the same on another replica: what it published meanwhile may be lost.
	OthersReconnected Reason = "others-reconnected"
	// Dropped means that a handler was too slow. It is reported at the first dropped message, and
	// again when the handler has processed its backlog.
	Dropped Reason = "dropped"
)

// OnGap calls fn after messages may have been lost, once new ones arrive again. Calls run one
// after the other on a goroutine of the bus; equal waiting gaps are one call. It may be called at
// any time; stop ends the calls, but not one in progress.
func (b *Bus) OnGap(fn func(Gap)) (stop func()) { return b.gaps.listen(fn) }

// gaps notifies the listeners.
type gaps struct {
	*lifecycle.Loop
	settle func(context.Context)

	mu        sync.Mutex
	listeners []*func(Gap)
	waiting   []Gap
	fresh     chan struct{} // holds a value while a gap waits
}

// newGaps returns gaps that call settle before they report a connection.
func newGaps(settle func(context.Context)) *gaps {
	g := &gaps{settle: settle, fresh: make(chan struct{}, 1)}
	g.Loop = lifecycle.NewLoop(g.run)
	return g
}

func (g *gaps) listen(fn func(Gap)) (stop func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := &fn
	g.listeners = append(g.listeners, l)
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		kept := make([]*func(Gap), 0, len(g.listeners)) // a copy: run reads the old slice
		for _, other := range g.listeners {
			if other != l {
				kept = append(kept, other)
			}
		}
		g.listeners = kept
	}
}

func (g *gaps) raise(gap Gap) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, other := range g.waiting {
		if other == gap {
			return
		}
	}
	g.waiting = append(g.waiting, gap)
	select {
	case g.fresh <- struct{}{}:
	default:
	}
}

func (g *gaps) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.fresh:
		}
		g.mu.Lock()
		waiting := g.waiting
		g.waiting = nil
		g.mu.Unlock()
		for _, gap := range waiting {
			g.tell(ctx, gap)
		}
	}
}

func (g *gaps) tell(ctx context.Context, gap Gap) {
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

// settleTimeout limits how long a gap waits until the server knows the subscriptions.
const settleTimeout = 5 * time.Second

// settle returns when the server has accepted the subscriptions of a new connection, so that
// nothing is lost between a read of SQL and the next message. It also notifies the other
// replicas: what this one published while disconnected may be lost, and they cannot know.
func (b *Bus) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	// If either fails, the connection is lost again, and the next one is a gap, too.
	_ = b.Flush(ctx)
	_ = b.Publish(WakeAll(), []byte(b.id))
}

// listenToOthers subscribes to the connections of other replicas.
func (b *Bus) listenToOthers(conn *nats.Conn) error {
	_, err := conn.Subscribe(WakeAll(), func(m *nats.Msg) {
		if string(m.Data) != b.id {
			b.gaps.raise(Gap{Reason: OthersReconnected})
		}
	})
	return err
}
