package webhooks

import (
	"context"
	"time"
)

// takeSlot waits at most d until this process may make one more attempt, in order of arrival. If
// it returns true, call leaveSlot afterwards.
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
