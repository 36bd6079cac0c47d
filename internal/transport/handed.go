package transport

import (
	"maps"
	"slices"
	"sync"
	"time"

	"comet/models"
)

// handed is what a line remembers of the messages it has handed over. The courier of the
// line keeps it; acknowledgements come from anywhere. It is safe for concurrent use.
type handed struct {
	mu  sync.Mutex
	all map[string]handover
}

// handover is one of them.
type handover struct {
	at   time.Time
	work bool
	// times is how often, had whether it was acknowledged since.
	times int
	had   bool
}

// forget notes that messages were acknowledged. They are forgotten before the inbox is
// read the next time: where it was read already, they may still be in what was read.
func (h *handed) forget(ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if one, ok := h.all[id]; ok {
			one.had = true
			h.all[id] = one
		}
	}
}

// toldOnly returns the ids of those that are no work and were not acknowledged.
func (h *handed) toldOnly() (ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, one := range h.all {
		if !one.work && !one.had {
			ids = append(ids, id)
		}
	}
	return ids
}

// sweep forgets what was acknowledged, and returns how many messages are left.
func (h *handed) sweep() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.all, func(_ string, one handover) bool { return one.had })
	return len(h.all)
}

// beside returns the ids of those that are not among the messages.
func (h *handed) beside(messages []models.InboxMessage) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.all) == 0 {
		return nil
	}
	among := make(map[string]bool, len(messages))
	for _, m := range messages {
		among[m.ID] = true
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(h.all)), func(id string) bool { return among[id] })
}

// drop forgets messages that are not in the inbox any more.
func (h *handed) drop(ids []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		delete(h.all, id)
	}
}

// count returns how many messages are remembered, and how many of them are work.
func (h *handed) count() (all, work int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, one := range h.all {
		if one.work {
			work++
		}
	}
	return len(h.all), work
}

func (h *handed) get(id string) (handover, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one, ok := h.all[id]
	return one, ok
}

// put remembers a message. One that was acknowledged meanwhile stays so.
func (h *handed) put(id string, one handover) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[string]handover{}
	}
	one.had = h.all[id].had
	h.all[id] = one
}
