package transport

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"comet/internal/background"
	"comet/models"
)

// inFlight holds the messages that a connection has delivered. The deliverer adds messages; any
// goroutine may acknowledge them. It is safe for concurrent use.
type inFlight struct {
	mu         sync.Mutex
	deliveries map[string]delivery
}

// delivery is the delivery state of one message.
type delivery struct {
	at     time.Time
	isTask bool
	// attempts counts the deliveries; acked says that the message was acknowledged after the last
	// one.
	attempts int
	acked    bool
	// due is the time of the next delivery of a publication, zero for other messages.
	due time.Time
}

// markAcked marks messages as acknowledged. removeAcked deletes them before the inbox is read the
// next time; an inbox that was read before may still contain them.
func (f *inFlight) markAcked(ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		if d, ok := f.deliveries[id]; ok {
			d.acked = true
			f.deliveries[id] = d
		}
	}
}

// untilDue returns the time until the next delivery of a publication, 0 for none. One that is overdue could not be
// delivered now.
func (f *inFlight) untilDue(now time.Time) (wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.deliveries {
		if !d.acked && !d.due.IsZero() {
			wait = minPositive(wait, cmp.Or(max(d.due.Sub(now), 0), time.Second))
		}
	}
	return wait
}

// unackedNotices returns the ids of unacknowledged messages that are not task assignments.
func (f *inFlight) unackedNotices() (ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, d := range f.deliveries {
		if !d.isTask && !d.acked {
			ids = append(ids, id)
		}
	}
	return ids
}

// removeAcked deletes acknowledged messages and returns how many messages are left.
func (f *inFlight) removeAcked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	maps.DeleteFunc(f.deliveries, func(_ string, d delivery) bool { return d.acked })
	return len(f.deliveries)
}

// missingFrom returns the ids that are not among messages.
func (f *inFlight) missingFrom(messages []models.InboxMessage) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.deliveries) == 0 {
		return nil
	}
	present := make(map[string]bool, len(messages))
	for _, m := range messages {
		present[m.ID] = true
	}
	return slices.DeleteFunc(slices.Collect(maps.Keys(f.deliveries)), func(id string) bool { return present[id] })
}

// remove deletes messages that are no longer in the inbox.
func (f *inFlight) remove(ids []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		delete(f.deliveries, id)
	}
}

// count returns the number of messages and the number of task assignments among them.
func (f *inFlight) count() (all, tasks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.deliveries {
		if d.isTask {
			tasks++
		}
	}
	return len(f.deliveries), tasks
}

func (f *inFlight) get(id string) (delivery, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, ok := f.deliveries[id]
	return d, ok
}

// put stores the state of a message. A message that was acknowledged in the meantime stays
// acknowledged.
func (f *inFlight) put(id string, d delivery) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.deliveries == nil {
		f.deliveries = map[string]delivery{}
	}
	d.acked = f.deliveries[id].acked
	f.deliveries[id] = d
}

// fleeting holds the publications that a connection gets at most once and has not sent yet. It is safe for concurrent use.
type fleeting struct {
	mu      sync.Mutex
	waiting []*models.Publication
	arrived background.Signal
}

// maxFleeting limits the publications that wait for a slow connection; further ones are dropped.
const maxFleeting = 100

// add adds a publication and reports whether there was space.
func (f *fleeting) add(p *models.Publication) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.waiting) >= maxFleeting {
		return false
	}
	f.waiting = append(f.waiting, p)
	f.arrived.Set()
	return true
}

// next returns the oldest publication, nil for none, after it has removed the previous one, which was sent.
func (f *fleeting) next(sent *models.Publication) *models.Publication {
	f.mu.Lock()
	defer f.mu.Unlock()
	if sent != nil {
		f.waiting = f.waiting[1:]
	}
	if len(f.waiting) == 0 {
		f.waiting = nil
		return nil
	}
	return f.waiting[0]
}
