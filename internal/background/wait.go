package background

import (
	"context"
	"time"

	"github.com/cenkalti/backoff/v5"
)

// Signal wakes one goroutine that receives from it. Calls of Set before the receive count as one.
type Signal chan struct{}

// NewSignal returns a signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Set wakes the receiver. It never waits.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Sleep returns after d, or with the error of ctx if that ends earlier.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// MaxBackoff is the usual longest wait between attempts that fail.
const MaxBackoff = 5 * time.Second

// NewBackoff returns the waits between attempts that fail: they double from a hundredth of longest
// to longest and vary by 50%.
func NewBackoff(longest time.Duration) *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = longest/100, 2, longest
	return b
}
