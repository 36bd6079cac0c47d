// Package jobs runs the work that follows a commit: timers, deliveries, retries,
// and what recurs. A job is a row written in the transaction that asks for it
// (store.Tx.Enqueue), so it is there exactly when its reason is, and is run at
// least once, by one worker of one replica at a time. A handler that ends its job
// in the transaction of its own effect has that effect exactly once.
package jobs

import (
	"context"
	"log/slog"
	"time"

	"comet/models"
	"comet/store"
)

// Handler does one job. Its context ends before the job's lease does, so it must
// not outlive its context. nil ends the job; an error, a panic or the end of the
// context is a failed attempt.
type Handler func(ctx context.Context, job *Job) error

// Job is a job in the hands of its handler.
type Job struct {
	models.Job
	finished bool
}

// Finish ends the job in the handler's own transaction, so that its effect
// happens exactly once. It returns store.ErrLeaseLost, and the transaction must
// then be given up, when another worker has taken the job over.
func (j *Job) Finish(tx *store.Tx) error {
	if err := tx.FinishJob(j.Job); err != nil {
		return err
	}
	j.finished = true
	return nil
}

// Policy says what follows a failed attempt. The zero value tries again for ever,
// after a second at first and after an hour at most.
type Policy struct {
	// MaxAttempts ends a job that failed so often: it is deleted and logged as
	// an error. An attempt that ended with its process counts. 0 is no limit.
	MaxAttempts int
	// Backoff is the wait after the first failure, default 1 s. It doubles with
	// each further one and varies by half of itself.
	Backoff time.Duration
	// MaxBackoff bounds the wait, default 1 h.
	MaxBackoff time.Duration
}

// Options configures New; nil is the zero value.
type Options struct {
	// Workers is how many jobs run at the same time, default 32.
	Workers int
	// Lease is how long a job is kept from other workers, and a little more than
	// an attempt may take; default 1 min.
	Lease time.Duration
	// Poll is how often the runner looks for jobs that this process was not told
	// of; default 500 ms.
	Poll time.Duration
	// Grace is how long Stop waits for handlers whose context it has ended,
	// default 5 s.
	Grace time.Duration
	// Logger hears of failures; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Workers <= 0 {
		out.Workers = 32
	}
	out.Lease = orElse(out.Lease, time.Minute)
	out.Poll = orElse(out.Poll, 500*time.Millisecond)
	out.Grace = orElse(out.Grace, 5*time.Second)
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
