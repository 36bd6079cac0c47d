package transport

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// The bounds of what one line has under way.
const (
	maxUnderWay      = 64       // messages
	maxUnderWayBytes = 16 << 20 // of all of them; more than the largest message
)

// pipeline takes the messages of a line. Those about one task follow one another, as
// they came; those about others do not wait for them, so that their commits are shared.
// A message that is about everything waits for all before it, and all after it wait for it.
type pipeline struct {
	room, bytes *semaphore.Weighted

	mu      sync.Mutex
	tails   map[string]chan struct{} // closed when the newest message about a task is taken
	running sync.WaitGroup
}

func newPipeline() *pipeline {
	return &pipeline{room: semaphore.NewWeighted(maxUnderWay), bytes: semaphore.NewWeighted(maxUnderWayBytes), tails: map[string]chan struct{}{}}
}

// add has take called with a message of so many bytes, and waits while too much is under
// way. key is what the message is about, "" for everything.
func (p *pipeline) add(ctx context.Context, key string, length int, take func()) error {
	if key == "" {
		p.running.Wait()
		take()
		return nil
	}
	size := min(int64(length), maxUnderWayBytes)
	if err := p.room.Acquire(ctx, 1); err != nil {
		return err
	}
	if err := p.bytes.Acquire(ctx, size); err != nil {
		p.room.Release(1)
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
		p.room.Release(1)
	})
	return nil
}

// receipts notes the acknowledgements of a line, those together that came while the
// ones before were noted.
type receipts struct {
	note func(ids []string)

	mu      sync.Mutex
	waiting []string
	noting  bool
	running sync.WaitGroup
}

// maxReceipts bounds how many wait; a line that acknowledges faster is not read.
const maxReceipts = 10_000

func (r *receipts) add(ids []string) {
	r.mu.Lock()
	r.waiting = append(r.waiting, ids...)
	full := len(r.waiting) > maxReceipts
	if !r.noting {
		r.noting = true
		r.running.Go(r.run)
	}
	r.mu.Unlock()
	if full {
		r.running.Wait()
	}
}

func (r *receipts) run() {
	for {
		r.mu.Lock()
		ids := r.waiting
		r.waiting = nil
		if len(ids) == 0 {
			r.noting = false
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		r.note(ids)
	}
}
