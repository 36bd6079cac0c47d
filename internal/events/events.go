// Package events turns the events that transactions write into one ordered stream. The Relay
// assigns positions to committed events; the Feed serves them from any position. Both read SQL
// only, so every committed event reaches every subscriber even if the process ends in between.
package events

import (
	"log/slog"
	"time"

	"comet/store"
)

// Options configures NewRelay and NewFeed; nil means defaults.
type Options struct {
	// Poll is the interval at which the relay looks for events without a wake-up, committed or
	// numbered by other replicas; default 500 ms.
	Poll time.Duration
	// OnNumbered writes what must exist exactly once per event. It is called in the transaction
	// that gave events the positions (after, upTo] and may run again like any write; its error
	// rolls the numbering back, which is then retried. Default none.
	OnNumbered func(tx *store.Tx, after, upTo int64) error
	// PerEvent returns how many rows OnNumbered writes per event at most. It is called in the
	// same transaction, which numbers at least one event and otherwise as many as produce 5,000
	// rows. Default 1.
	PerEvent func(tx *store.Tx) (int, error)
	// Logger receives the loss and return of the database; default discards.
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
