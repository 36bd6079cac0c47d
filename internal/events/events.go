// Package events turns what transactions wrote about themselves into one ordered
// stream. The Relay gives committed events their positions; the Feed hands them,
// from any position on, to whoever asks. Both read SQL only, so an event that was
// committed reaches every subscriber although the process ended in between.
package events

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v5"

	"comet/store"
)

// Options configures NewRelay and NewFeed; nil is the zero value.
type Options struct {
	// Poll is how often the relay looks for events that this process was not
	// told of, those that other replicas committed or numbered; default 500 ms.
	Poll time.Duration
	// OnNumbered writes what must exist exactly once for each event. It is called in
	// the transaction that gave events the positions (after, upTo] and may run again
	// from the start like any write; its error undoes the numbering, which is then
	// tried again. Default nothing.
	OnNumbered func(tx *store.Tx, after, upTo int64) error
	// PerEvent returns how many rows OnNumbered writes for one event at most. It is
	// called in the same transaction, which numbers as many events as make 5,000 rows
	// at most, and one always. Default 1.
	PerEvent func(tx *store.Tx) (int, error)
	// Logger hears when the database stops answering and when it answers again;
	// default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Poll <= 0 {
		out.Poll = 500 * time.Millisecond
	}
	if out.OnNumbered == nil {
		out.OnNumbered = func(*store.Tx, int64, int64) error { return nil }
	}
	if out.PerEvent == nil {
		out.PerEvent = func(*store.Tx) (int, error) { return 1, nil }
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

// health logs when something stops working and when it works again, once each.
type health struct {
	log     *slog.Logger
	what    string
	failing atomic.Bool
}

func (h *health) report(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil: // we are being stopped, which says nothing
	case err != nil && !h.failing.Swap(true):
		h.log.WarnContext(ctx, h.what+" fails and is tried again", "error", err)
	case err == nil && h.failing.Swap(false):
		h.log.InfoContext(ctx, h.what+" works again")
	}
}

// newBackoff is the wait after a failure, from 50 ms to about 5 s.
func newBackoff() *backoff.ExponentialBackOff {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = 50*time.Millisecond, 2, 5*time.Second
	return b
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
