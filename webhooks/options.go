package webhooks

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"comet/internal/netguard"
)

// Options configures New; nil is the zero value.
type Options struct {
	// Guard decides which addresses may be connected to, default public ones only.
	Guard *netguard.Guard
	// HTTPSOnly refuses URLs that begin with http:.
	HTTPSOnly bool
	// UserAgent is the header of every attempt, default "comet".
	UserAgent string
	// Timeout is how long an attempt may take, default 15 s.
	Timeout time.Duration
	// Concurrency is how many attempts are made at one webhook at the same time while
	// it works, default 16.
	Concurrency int
	// MaxAttempts is how many attempts are made at all webhooks together at the same
	// time, tests included, default 512; more of them wait.
	MaxAttempts int
	// Poll is how often the dispatcher looks for what this process was not told of:
	// retries that are due, and what other replicas created; default 500 ms.
	Poll time.Duration
	// Retention is how long a delivery that has ended is kept, default 30 days.
	Retention time.Duration
	// Grace is how long Stop waits for attempts that it has cut off, default 5 s.
	Grace time.Duration
	// Random varies the waits before retries; it returns numbers in [0, 1) and is
	// called by several goroutines. Default math/rand/v2.
	Random func() float64
	// OnAttempt hears of every attempt that has ended, tests included, and must return
	// at once; default nobody.
	OnAttempt func(succeeded bool, took time.Duration)
	// Logger hears of webhooks that are disabled and of a database that fails; default
	// discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Guard == nil {
		out.Guard = netguard.New(nil)
	}
	if out.Concurrency <= 0 {
		out.Concurrency = 16
	}
	if out.MaxAttempts <= 0 {
		out.MaxAttempts = 512
	}
	out.Timeout = orElse(out.Timeout, defaultTimeout)
	out.Poll = orElse(out.Poll, 500*time.Millisecond)
	out.Retention = orElse(out.Retention, 30*24*time.Hour)
	out.Grace = orElse(out.Grace, 5*time.Second)
	if out.Random == nil {
		out.Random = rand.Float64
	}
	if out.OnAttempt == nil {
		out.OnAttempt = func(bool, time.Duration) {}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	return out
}

func orElse(d, otherwise time.Duration) time.Duration {
	if d <= 0 {
		return otherwise
	}
	return d
}
