package transport

import (
	"cmp"
	"context"
	"maps"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/semaphore"

	"comet/internal/protocol"
)

// Limits of the messages that one connection processes at the same time.
const (
	maxPipelined      = 64       // messages
	maxPipelinedBytes = 16 << 20 // total; more than the longest message
)

// pipeline processes the messages of a connection so that messages that arrive together share
// commits. A message begins once the previous one is placed (background.WithPlacement), so messages
// take effect in their order as far as the database orders transactions. protocol.Order states which
// earlier messages a message waits for. Replies are written in the order of the messages. Only one
// goroutine may call add.
type pipeline struct {
	slots, bytes *semaphore.Weighted
	running      sync.WaitGroup
	none         *pipelined            // a finished message
	last         *pipelined            // the newest message
	creator      *pipelined            // the newest independent message
	byKey        map[string]*pipelined // the newest message with each key; it may have ended
	// unreplied is the newest message of any order; its reply may be written already. Any goroutine may read it.
	unreplied atomic.Pointer[pipelined]
}

// pipelined is a message in progress. Each channel is closed when the message reaches the state.
type pipelined struct {
	order     protocol.Order
	once      sync.Once
	isOrdered bool          // all later transactions take effect after it
	placed    chan struct{} // or processed without a transaction
	processed chan struct{} // as are all earlier messages with its key
	replied   chan struct{}
}

func newPipelined(order protocol.Order) *pipelined {
	return &pipelined{order: order, placed: make(chan struct{}), processed: make(chan struct{}), replied: make(chan struct{})}
}

func (m *pipelined) place(ordered bool) {
	m.once.Do(func() {
		m.isOrdered = ordered
		close(m.placed)
	})
}

func newPipeline() *pipeline {
	none := newPipelined(protocol.Order{})
	none.place(true)
	close(none.processed)
	close(none.replied)
	p := &pipeline{
		slots: semaphore.NewWeighted(maxPipelined), bytes: semaphore.NewWeighted(maxPipelinedBytes),
		none: none, last: none, creator: none, byKey: map[string]*pipelined{},
	}
	p.unreplied.Store(none)
	return p
}

// waitForReplies returns when the replies to all messages that were added before the call are written,
// or when ctx ends. Any goroutine may call it.
func (p *pipeline) waitForReplies(ctx context.Context) {
	select {
	case <-p.unreplied.Load().replied:
	case <-ctx.Done():
	}
}

// add calls process for a message of length bytes, and then the function that it returns, which
// writes the reply. It blocks while a limit is reached. process passes placed to background.WithPlacement.
func (p *pipeline) add(ctx context.Context, order protocol.Order, length int, process func(placed func(ordered bool)) (reply func())) error {
	if order.Key == "" && !order.Independent {
		p.running.Wait()
		m := newPipelined(order)
		p.unreplied.Store(m)
		process(nil)()
		close(m.replied)
		return nil
	}
	size := min(int64(length), maxPipelinedBytes)
	if err := p.slots.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := p.bytes.Acquire(ctx, size); err != nil {
		p.slots.Release(1)
		return err
	}
	m, prev, creator, dependency := newPipelined(order), p.last, p.creator, p.dependency(order)
	p.unreplied.Store(m)
	if p.last = m; order.Independent {
		p.creator = m
	} else {
		p.byKey[order.Key] = m
	}
	p.running.Go(func() {
		<-prev.placed
		if !order.Independent {
			<-creator.processed
			if !dependency.order.Atomic || !order.Blind || !dependency.isOrdered { // dependency is placed
				<-dependency.processed
			}
		}
		reply := process(m.place)
		m.place(false)
		<-creator.processed // a message that fails may be faster
		<-dependency.processed
		close(m.processed)
		<-prev.replied
		reply()
		close(m.replied)
		p.bytes.Release(size)
		p.slots.Release(1)
	})
	return nil
}

// dependency returns the newest message with the same key. It also removes ended messages from a large map.
func (p *pipeline) dependency(order protocol.Order) *pipelined {
	if len(p.byKey) >= 2*maxPipelined {
		maps.DeleteFunc(p.byKey, func(_ string, m *pipelined) bool {
			select {
			case <-m.processed:
				return true
			default:
				return false
			}
		})
	}
	return cmp.Or(p.byKey[order.Key], p.none)
}
