package background

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

var (
	// ErrFull reports that all slots of a Limiter are taken.
	ErrFull = errors.New("all slots are taken")
	// ErrKeyFull reports that all slots of one key are taken.
	ErrKeyFull = errors.New("all slots of the key are taken")
)

// Limiter limits how many slots are taken at a time: in total, and for one key, so that one key
// cannot take them all. It never waits. It is safe for concurrent use.
type Limiter[K comparable] struct {
	total, perKey int

	mu    sync.Mutex
	taken int
	byKey map[K]int
}

// NewLimiter returns a Limiter of total slots, of which one key may take perKey.
func NewLimiter[K comparable](total, perKey int) *Limiter[K] {
	return &Limiter[K]{total: total, perKey: perKey, byKey: map[K]int{}}
}

// Acquire takes a slot for a key, which release frees and must be called once. It returns ErrFull or
// ErrKeyFull at a limit.
func (l *Limiter[K]) Acquire(key K) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.taken >= l.total {
		return nil, ErrFull
	}
	if l.byKey[key] >= l.perKey {
		return nil, ErrKeyFull
	}
	l.taken++
	l.byKey[key]++
	return func() { l.release(key) }, nil
}

func (l *Limiter[K]) release(key K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.taken--
	if l.byKey[key]--; l.byKey[key] == 0 {
		delete(l.byKey, key)
	}
}

// AcquireWithin takes one slot of a semaphore, in order of arrival. It waits at most d and returns
// the error of a context that ended.
func AcquireWithin(ctx context.Context, slots *semaphore.Weighted, d time.Duration) error {
	if slots.TryAcquire(1) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return slots.Acquire(ctx, 1)
}
