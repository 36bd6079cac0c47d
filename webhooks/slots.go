package webhooks

import (
	"context"
	"time"
)

// takeSlot waits, for d at most, until one more attempt may be made in this process;
// those who wait get their turns in order. It reports whether it may, and then
// leaveSlot follows.
func (w *Webhooks) takeSlot(ctx context.Context, d time.Duration) bool {
	select {
	case w.slots <- struct{}{}:
		return true
	default:
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case w.slots <- struct{}{}:
		return true
	case <-ctx.Done():
	case <-t.C:
	}
	return false
}

func (w *Webhooks) leaveSlot() { <-w.slots }
