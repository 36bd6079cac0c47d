package transport

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// Limits of the messages that one connection processes at the same time.
const (
	maxPipelined      = 64       // messages
	maxPipelinedBytes = 16 << 20 // total; more than the longest message
)

// pipeline processes the messages of a connection. Messages with the same ordering key are
// processed in order. Messages with different keys are processed in parallel, so that they share
// commits. A message without a key waits for all earlier ones, and all later ones wait for it.
type pipeline struct {
	slots, bytes *semaphore.Weighted

	mu      sync.Mutex
	tails   map[string]chan struct{} // closed when the newest message with the key is processed
	running sync.WaitGroup
}

func newPipeline() *pipeline {
	return &pipeline{slots: semaphore.NewWeighted(maxPipelined), bytes: semaphore.NewWeighted(maxPipelinedBytes), tails: map[string]chan struct{}{}}
}

// add calls process for a message of length bytes. It blocks while too much is in progress. key is
// the ordering key, "" to order the message with all others.
func (p *pipeline) add(ctx context.Context, key string, length int, process func()) error {
	if key == "" {
		p.running.Wait()
		process()
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
	done := make(chan struct{})
	p.mu.Lock()
	prev := p.tails[key]
	p.tails[key] = done
	p.mu.Unlock()
	p.running.Go(func() {
		if prev != nil {
			<-prev
		}
		process()
		p.mu.Lock()
		if p.tails[key] == done {
			delete(p.tails, key)
		}
		p.mu.Unlock()
		close(done)
		p.bytes.Release(size)
		p.slots.Release(1)
	})
	return nil
}

// ackBatcher groups the acknowledgements of a connection: those that arrive while a batch is
// written form the next batch. A background.Batcher would write at intervals instead.
type ackBatcher struct {
	acknowledge func(ids []string)

	mu       sync.Mutex
	pending  []string
	flushing bool
	writing  sync.Mutex
	running  sync.WaitGroup
}

// maxPendingAcks limits the pending acknowledgements. A connection that exceeds it is not read
// until a batch is written.
const maxPendingAcks = 10_000

func (b *ackBatcher) add(ids []string) {
	b.mu.Lock()
	b.pending = append(b.pending, ids...)
	full := len(b.pending) > maxPendingAcks
	if !b.flushing {
		b.flushing = true
		b.running.Go(b.flush)
	}
	b.mu.Unlock()
	if full {
		b.writing.Lock()
		defer b.writing.Unlock()
	}
}

func (b *ackBatcher) flush() {
	for {
		b.mu.Lock()
		ids := b.pending
		b.pending, b.flushing = nil, len(ids) > 0
		b.mu.Unlock()
		if len(ids) == 0 {
			return
		}
		b.writing.Lock()
		b.acknowledge(ids)
		b.writing.Unlock()
	}
}
