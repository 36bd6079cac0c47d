package bus

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"comet/internal/lifecycle"
)

// Gap says that messages may be missing: whoever relies on being woken by them looks
// at SQL again.
type Gap struct {
	// Reason is why.
	Reason Reason
	// Subject is that of the subscription it is about, "" for all of them.
	Subject string
}

// Reason is why messages may be missing.
type Reason string

// The reasons.
const (
	// Reconnected is a connection that was lost and made again, or that was made only
	// some time after Start.
	Reconnected Reason = "reconnected"
	// OthersReconnected is the same on another replica: what it published meanwhile may
	// not have gone out.
	OthersReconnected Reason = "others-reconnected"
	// Dropped is a handler that was too slow for its messages. It is told at the first
	// message that is dropped, and again when the handler has been through what waited.
	Dropped Reason = "dropped"
)

// OnGap has fn called after messages may have been lost, when new ones arrive again.
// The calls come one after the other on a goroutine of the bus, equal gaps that wait
// are one call, and one is under way at most while others wait. It may be called at any
// time; stop ends the calls, but not the one under way.
func (b *Bus) OnGap(fn func(Gap)) (stop func()) { return b.gaps.listen(fn) }

// gaps tells the listeners.
type gaps struct {
	*lifecycle.Loop
	settle func(context.Context)

	mu        sync.Mutex
	listeners []*func(Gap)
	waiting   []Gap
	fresh     chan struct{} // holds a value while something waits
}

// newGaps returns gaps that call settle before they tell of a connection.
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
		kept := make([]*func(Gap), 0, len(g.listeners)) // not in place: run reads the old one
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

// settleTimeout bounds how long a gap waits for the server to know the subscriptions.
const settleTimeout = 5 * time.Second

// settle returns when the server has taken the subscriptions of a new connection, so
// that nothing falls between a look at SQL and the next message. It also tells the other
// replicas: what this one published while it was cut off may be lost, and they, whose
// lines were never down, would not know.
func (b *Bus) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	// Where either fails the connection is lost again, and the next one is a gap too.
	_ = b.Flush(ctx)
	_ = b.Publish(WakeAll(), []byte(b.id))
}

// listenToOthers hears of the other replicas' connections.
func (b *Bus) listenToOthers(conn *nats.Conn) error {
	_, err := conn.Subscribe(WakeAll(), func(m *nats.Msg) {
		if string(m.Data) != b.id {
			b.gaps.raise(Gap{Reason: OthersReconnected})
		}
	})
	return err
}
