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

	lru "github.com/hashicorp/golang-lru/v2"

	"comet/internal/background"
	"comet/models"
)

const (
	// interval is the least time between two events of one key.
	interval = time.Second
	// maxPending is how many keys may wait for the next interval; further ones are dropped.
	maxPending = 10_000
	// maxReceived is the number of keys whose newest version is kept.
	maxReceived = 10 * maxPending
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
	pending     map[string]change
	received    *lru.Cache[string, int64] // the newest version of each key that a replica has published
	subscribers map[chan []models.Event]bool
}

// change is an event with the version of the object that its key names; versions start at 1.
type change struct {
	models.Event

	Version int64 `json:"version"`
}

// New returns Events. publish sends a message to the method Receive of every replica, this one included; nil is for
// a process without replicas.
func New(publish func(message []byte)) *Events {
	l := &Events{publish: publish, pending: map[string]change{}, subscribers: map[chan []models.Event]bool{}}
	l.received, _ = lru.New[string, int64](maxReceived) // New fails only for a size below 1
	if publish == nil {
		l.publish = l.Receive
	}
	loop := background.NewPollLoop(background.PollOptions{Task: "publishing live events", Logger: slog.New(slog.DiscardHandler)}, func(context.Context) (time.Duration, error) {
		return interval, l.flush()
	})
	l.Loop = background.NewLoop(loop.Run)
	return l
}

// Mark queues an event for publication. It replaces a pending event with the same key and an earlier version. data is encoded
// as JSON.
func (l *Events) Mark(kind models.EventType, key string, version int64, at time.Time, data any) error {
	text, err := json.Marshal(data)
	l.mu.Lock()
	defer l.mu.Unlock()
	if former, waits := l.pending[key]; err == nil && former.Version < version && (waits || len(l.pending) < maxPending) {
		l.pending[key] = change{models.Event{Type: kind, Key: key, At: at, Data: text}, version}
	}
	return err
}

// flush publishes what is pending, in a random order, so that a slow subscriber does not lose the same keys each time.
func (l *Events) flush() error {
	l.mu.Lock()
	keys, pending := slices.Collect(maps.Keys(l.pending)), l.pending
	l.pending = map[string]change{}
	l.mu.Unlock()
	for batch := range slices.Chunk(keys, maxBatch) {
		list := make([]change, len(batch))
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

// Receive passes a message of a replica to the subscribers, without events that are older than a received one with the same
// key. A subscriber whose buffer is full loses the message.
func (l *Events) Receive(message []byte) {
	var changes []change
	if json.Unmarshal(message, &changes) != nil {
		return // from another release
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var list []models.Event
	for _, c := range changes {
		if newest, ok := l.received.Get(c.Key); !ok || newest < c.Version || c.Version == 0 { // replicas of earlier releases send no version
			l.received.Add(c.Key, max(newest, c.Version))
			list = append(list, c.Event)
		}
	}
	if len(list) == 0 {
		return
	}
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
