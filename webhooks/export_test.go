package webhooks

import (
	"context"
	"time"
)

// Schedule is the waits between the attempts at a delivery.
func Schedule() []time.Duration { return retryWaits() }

// Next is the wait after the failure of a try.
func Next(try int, random float64, retryAfter time.Duration) (time.Duration, bool) {
	return nextWait(try, random, retryAfter)
}

// TakeSlot takes the place of one attempt, if ctx lives long enough.
func (w *Webhooks) TakeSlot(ctx context.Context) bool { return w.takeSlot(ctx, time.Hour) }
