package events

import (
	"context"
	"sync"

	"comet/internal/background"
	"comet/models"
	"comet/store"
)

// Feed serves numbered events to subscribers, each at its own pace, from the newest events in memory. A
// subscriber that is behind them reads SQL: it costs the others nothing and misses nothing that is still
// retained.
type Feed struct {
	store    *store.Store
	failures *background.FailureLog

	mu    sync.Mutex
	fresh chan struct{} // closed and replaced when there may be new events
}

// NewFeed returns a feed; a Relay wakes it.
func NewFeed(s *store.Store, opts *Options) *Feed {
	return &Feed{store: s, failures: background.NewFailureLog(opts.orDefaults().Logger), fresh: make(chan struct{})}
}

// Wake lets every waiting subscriber look for events again.
func (f *Feed) Wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.fresh)
	f.fresh = make(chan struct{})
}

func (f *Feed) woken() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fresh
}

// Subscribe returns a subscription to the events with a position above after; 0 starts with the
// oldest retained event.
func (f *Feed) Subscribe(after int64) *Subscription {
	return &Subscription{feed: f, cursor: after}
}

// SubscribeNew returns a subscription to events that are numbered from now on.
func (f *Feed) SubscribeNew(ctx context.Context) (*Subscription, error) {
	head, err := f.store.Events(ctx).LastPosition()
	if err != nil {
		return nil, err
	}
	return f.Subscribe(head), nil
}

// Subscription is one reader's position in the stream. It holds no resources and needs no
// closing. It must not be used by two goroutines at once.
type Subscription struct {
	feed   *Feed
	cursor int64
	types  []models.EventType // nil for all
}

// Only restricts Next to events of these types.
func (s *Subscription) Only(types ...models.EventType) *Subscription {
	s.types = types
	return s
}

// Position returns the position of the last event that Next returned or skipped, or the start of
// the subscription. Subscribe(Position()) continues there, on any replica.
func (s *Subscription) Position() int64 { return s.cursor }

// Next waits for events above the position, returns up to limit of them in order and advances the
// position. Positions have no gaps, except for events that were purged before they were read. Its
// only error is that of ctx: while the database does not respond, Next waits.
func (s *Subscription) Next(ctx context.Context, limit int) ([]models.Event, error) {
	failed := background.NewBackoff(background.MaxBackoff)
	for {
		woken := s.feed.woken() // before the read, so that no wake-up is missed
		events, err := s.look(ctx, limit)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		s.feed.failures.Report(ctx, "reading events", err)
		switch {
		case err != nil:
			_ = background.Sleep(ctx, failed.NextBackOff())
			continue
		case len(events) > 0:
			return events, nil
		}
		failed.Reset()
		select {
		case <-woken:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// look reads once, usually from memory, and advances the position.
func (s *Subscription) look(ctx context.Context, limit int) ([]models.Event, error) {
	reader := s.feed.store.Events(ctx)
	upTo := reader.Followed()
	found, err := reader.Between(s.cursor, upTo, s.types, limit)
	switch {
	case err != nil:
	case len(found) == limit || len(found) > 0 && s.types == nil:
		s.cursor = found[len(found)-1].Position
	default:
		s.cursor = max(s.cursor, upTo) // events in between have other types
	}
	return found, err
}
