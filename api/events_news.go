package api

import (
	"context"
	"slices"
	"sort"
	"sync"

	"comet/internal/events"
	"comet/models"
)

// keptNews is how many of the newest events are kept for the streams of a process.
const keptNews = 2000

// news reads what happens once for all streams, as long as there are any: a thousand
// streams that each asked the database would ask it a thousand times for every event.
// A stream that is further behind than what is kept asks for itself until it is not.
type news struct {
	feed *events.Feed

	mu      sync.Mutex
	readers int
	current *newest
	stop    func()
}

// join returns the newest events, and what the stream calls when it ends.
func (n *news) join(ctx context.Context) (*newest, func(), error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.readers == 0 {
		sub, err := n.feed.SubscribeNew(ctx)
		if err != nil {
			return nil, nil, err
		}
		n.begin(sub)
	}
	n.readers++
	return n.current, n.leave, nil
}

func (n *news) begin(sub *events.Subscription) {
	ctx, cancel := context.WithCancel(context.Background())
	kept := &newest{from: sub.Position(), fresh: make(chan struct{})}
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			batch, err := sub.Next(ctx, streamBatch)
			if err != nil {
				return
			}
			kept.add(batch)
		}
	})
	n.current, n.stop = kept, func() {
		cancel()
		reader.Wait()
	}
}

// leave ends the reading with the last stream, and waits for its end.
func (n *news) leave() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.readers--; n.readers == 0 {
		n.stop()
		n.current, n.stop = nil, nil
	}
}

// newest are the events that were read last.
type newest struct {
	mu    sync.Mutex
	kept  []models.Event // in order; what is in it does not change
	from  int64          // it has all that came behind this position
	fresh chan struct{}  // closed and replaced when there are more
}

func (n *newest) add(batch []models.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, batch...)
	if len(n.kept) > 2*keptNews {
		n.from = n.kept[len(n.kept)-keptNews-1].Position
		n.kept = slices.Clone(n.kept[len(n.kept)-keptNews:])
	}
	close(n.fresh)
	n.fresh = make(chan struct{})
}

// after returns up to limit events behind a position, and what ends the wait for more.
// ok is false where some of them are not kept any more.
func (n *newest) after(at int64, limit int) (batch []models.Event, fresh <-chan struct{}, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if at < n.from {
		return nil, nil, false
	}
	i := sort.Search(len(n.kept), func(i int) bool { return n.kept[i].Position > at })
	return n.kept[i:min(i+limit, len(n.kept)):len(n.kept)], n.fresh, true
}

// next waits for events behind a position and returns up to limit of them. Its only
// error is that of ctx.
func (s *Server) next(ctx context.Context, kept *newest, at int64, limit int) ([]models.Event, error) {
	for {
		batch, fresh, ok := kept.after(at, limit)
		if !ok {
			return s.feed.Subscribe(at).Next(ctx, limit)
		}
		if len(batch) > 0 {
			return batch, nil
		}
		select {
		case <-fresh:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
