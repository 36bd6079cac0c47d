package transport

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// The bounds of what one line has under way.
const (
	maxPipelined      = 64       // messages
	maxPipelinedBytes = 16 << 20 // of all of them; more than the largest message
)

// pipeline takes the messages of a line. Those about one task follow one another, as
// they came; those about others do not wait for them, so that their commits are shared.
// A message that is about everything waits for all before it, and all after it wait for it.
type pipeline struct {
	slots, bytes *semaphore.Weighted

	mu      sync.Mutex
	tails   map[string]chan struct{} // closed when the newest message about a task is taken
	running sync.WaitGroup
}

func newPipeline() *pipeline {
	return &pipeline{slots: semaphore.NewWeighted(maxPipelined), bytes: semaphore.NewWeighted(maxPipelinedBytes), tails: map[string]chan struct{}{}}
}

// add has take called with a message of so many bytes, and waits while too much is under
// way. key is what the message is about, "" for everything.
func (p *pipeline) add(ctx context.Context, key string, length int, take func()) error {
	if key == "" {
		p.running.Wait()
		take()
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
	taken := make(chan struct{})
	p.mu.Lock()
	before := p.tails[key]
	p.tails[key] = taken
	p.mu.Unlock()
	p.running.Go(func() {
		if before != nil {
			<-before
		}
		take()
		p.mu.Lock()
		if p.tails[key] == taken {
			delete(p.tails, key)
		}
		p.mu.Unlock()
		close(taken)
		p.bytes.Release(size)
		p.slots.Release(1)
	})
	return nil
}

// ackBatcher notes the acknowledgements of a line, those together that came while the
// ones before were noted.
type ackBatcher struct {
	acknowledge func(ids []string)

	mu       sync.Mutex
	pending  []string
	flushing bool
	running  sync.WaitGroup
}

// maxPendingAcks bounds how many wait; a line that acknowledges faster is not read.
const maxPendingAcks = 10_000

func (r *ackBatcher) add(ids []string) {
	r.mu.Lock()
	r.pending = append(r.pending, ids...)
	full := len(r.pending) > maxPendingAcks
	if !r.flushing {
		r.flushing = true
		r.running.Go(r.flush)
	}
	r.mu.Unlock()
	if full {
		r.running.Wait()
	}
}

func (r *ackBatcher) flush() {
	for {
		r.mu.Lock()
		ids := r.pending
		r.pending = nil
		if len(ids) == 0 {
			r.flushing = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		r.acknowledge(ids)
	}
}
