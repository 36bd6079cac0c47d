package transport

import (
	"maps"
	"slices"
	"sync"
	"time"

	"comet/models"
)

// inFlight is what a line remembers of the messages it has handed over. The courier of the
// line keeps it; acknowledgements come from anywhere. It is safe for concurrent use.
type inFlight struct {
	mu         sync.Mutex
	deliveries map[string]delivery
}

// delivery is one of them.
type delivery struct {
	at     time.Time
	isTask bool
	// attempts is how often, had whether it was acknowledged since.
	attempts int
	acked    bool
}

// markAcked notes that messages were acknowledged. They are forgotten before the inbox is
// read the next time: where it was read already, they may still be in what was read.
func (h *inFlight) markAcked(ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if one, ok := h.deliveries[id]; ok {
			one.acked = true
			h.deliveries[id] = one
		}
	}
}

// unackedNotices returns the ids of those that are no work and were not acknowledged.
func (h *inFlight) unackedNotices() (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, one := range h.deliveries {
		if !one.isTask && !one.acked {
			ids = append(ids, id)
		}
	}
	return ids
}

// removeAcked forgets what was acknowledged, and returns how many messages are left.
func (h *inFlight) removeAcked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.deliveries, func(_ string, one delivery) bool { return one.acked })
	return len(h.deliveries)
}

// missingFrom returns the ids of those that are not among the messages.
func (h *inFlight) missingFrom(messages []models.InboxMessage) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.deliveries) == 0 {
		return nil
	}
	among := make(map[string]bool, len(messages))
	for _, m := range messages {
		among[m.ID] = true
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(h.deliveries)), func(id string) bool { return among[id] })
}

// remove forgets messages that are not in the inbox any more.
func (h *inFlight) remove(ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		delete(h.deliveries, id)
	}
}

// count returns how many messages are remembered, and how many of them are work.
func (h *inFlight) count() (all, work int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.deliveries {
		if one.isTask {
			work++
		}
	}
	return len(h.deliveries), work
}

func (h *inFlight) get(id string) (delivery, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, ok := h.deliveries[id]
	return one, ok
}

// put remembers a message. One that was acknowledged meanwhile stays so.
func (h *inFlight) put(id string, one delivery) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deliveries == nil {
		h.deliveries = map[string]delivery{}
	}
	one.acked = h.deliveries[id].acked
	h.deliveries[id] = one
}
