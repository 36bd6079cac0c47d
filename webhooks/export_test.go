package webhooks

import (
	"context"
	"time"

	"comet/internal/background"
)

// Schedule is the waits between the attempts at a delivery.
func Schedule() []time.Duration {
	var all []time.Duration
	for _, s := range retrySeconds() {
		all = append(all, time.Duration(s)*time.Second)
	}
	return all
}

// Next is the wait after the failure of a try.
func Next(try int, random float64, retryAfter time.Duration) (time.Duration, bool) {
	return nextWait(nil, try, random, retryAfter)
}

// TakeSlot takes the slot of one attempt, and reports whether it did.
func (w *Webhooks) TakeSlot(ctx context.Context) bool {
	return background.AcquireWithin(ctx, w.attempts, time.Hour) == nil
}
