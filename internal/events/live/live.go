// Package live carries events that are sent to streams of events and not stored (ADR 63).
package live

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"comet/internal/background"
	"comet/models"
)

const (
	// interval is the least time between two events of one key.
	interval = time.Second
	// maxPending is how many keys may wait for the next interval; further ones are dropped.
	maxPending = 10_000
	// maxBatch is how many events one message has at most, and buffer how many messages wait for a subscriber.
	maxBatch, buffer = 500, maxPending/500 + 1
)

// UsageChanged is sent when the account of an agent has changed. Its key is the agent's id.
const UsageChanged models.EventType = "usage.changed"

// Events publishes the last event of each key to all replicas once a second. Any event may be lost, so a subscriber
// must be able to read the state again.
type Events struct {
	*background.Loop
	publish func(message []byte)

	mu          sync.Mutex
	pending     map[string]models.Event
	subscribers map[chan []models.Event]bool
}

// New returns Events. publish sends a message to the method Receive of every replica, this one included; nil is for
// a process without replicas.
func New(publish func(message []byte)) *Events {
	l := &Events{publish: publish, pending: map[string]models.Event{}, subscribers: map[chan []models.Event]bool{}}
	if publish == nil {
		l.publish = l.Receive
	}
	loop := background.NewPollLoop(background.PollOptions{Task: "publishing live events", Logger: slog.New(slog.DiscardHandler)}, func(context.Context) (time.Duration, error) {
		return interval, l.flush()
	})
	l.Loop = background.NewLoop(loop.Run)
	return l
}

// Mark queues an event for publication. It replaces a pending event with the same key. data is encoded as JSON.
func (l *Events) Mark(kind models.EventType, key string, at time.Time, data any) error {
	text, err := json.Marshal(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, waits := l.pending[key]; err == nil && (waits || len(l.pending) < maxPending) {
		l.pending[key] = models.Event{Type: kind, Key: key, At: at, Data: text}
	}
	return err
}

// flush publishes what is pending, in a random order, so that a slow subscriber does not lose the same keys each time.
func (l *Events) flush() error {
	l.mu.Lock()
	keys, pending := slices.Collect(maps.Keys(l.pending)), l.pending
	l.pending = map[string]models.Event{}
	l.mu.Unlock()
	for batch := range slices.Chunk(keys, maxBatch) {
		list := make([]models.Event, len(batch))
		for i, key := range batch {
			list[i] = pending[key]
		}
		message, err := json.Marshal(list)
		if err != nil {
			return err
		}
		l.publish(message)
	}
	return nil
}

// Receive passes a message of a replica to the subscribers. A subscriber whose buffer is full loses it.
func (l *Events) Receive(message []byte) {
	var list []models.Event
	if json.Unmarshal(message, &list) != nil {
		return // of another version
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for to := range l.subscribers {
		select {
		case to <- list:
		default:
		}
	}
}

// Subscribe returns the events from now on, until stop is called. Nil Events send none.
func (l *Events) Subscribe() (list <-chan []models.Event, stop func()) {
	if l == nil {
		return nil, func() {}
	}
	to := make(chan []models.Event, buffer)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers[to] = true
	return to, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.subscribers, to)
	}
}
