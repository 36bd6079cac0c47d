// Package jobs runs the work that follows a commit: timers, deliveries, retries and recurring work.
// A job is a row written in the transaction that requests it (store.Jobs.Enqueue), so it exists
// exactly if its cause does, and it runs at least once, on one worker of one replica at a time. A
// handler that ends its job in the transaction of its own effect has that effect exactly once.
package jobs

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"comet/store"
)

// Handler runs one job. Its context ends before the job's lease, and it must return with its
// context. nil ends the job; an error, a panic or the end of the context is a failed attempt.
type Handler func(ctx context.Context, job *Job) error

// Job is a claimed job, as passed to its handler.
type Job struct {
	store.Job
	finished bool
}

// Finish ends the job in the handler's own transaction, so that its effect happens exactly once.
// If another worker has claimed the job, it returns store.ErrLeaseLost, and the transaction must
// be rolled back.
func (j *Job) Finish(tx *store.Tx) error {
	if err := tx.Jobs().Finish(j.Job); err != nil {
		return err
	}
	j.finished = true
	return nil
}

// Policy describes retries of a failed attempt. The zero value retries without end, after one
// second at first and after one hour at most.
type Policy struct {
	// MaxAttempts limits the attempts: after that many failures the job is deleted and logged as
	// an error. An attempt whose process died counts. 0 is no limit.
	MaxAttempts int
	// Backoff is the wait after the first failure, default 1 s. It doubles with each further
	// failure and varies by 50%.
	Backoff time.Duration
	// MaxBackoff limits the wait, default 1 h.
	MaxBackoff time.Duration
}

// Options configures New; nil means defaults.
type Options struct {
	// Workers is how many jobs run in parallel, default 32.
	Workers int
	// Lease is how long a claimed job belongs to its worker, slightly longer than an attempt may
	// take; default 1 min.
	Lease time.Duration
	// Poll is the interval at which the runner looks for jobs without a wake-up; default 500 ms.
	Poll time.Duration
	// Grace is how long Stop waits for handlers whose context it has ended, default 5 s.
	Grace time.Duration
	// Logger receives failures; default discards.
	Logger *slog.Logger
}

func (o *Options) orDefaults() Options {
	out := *cmp.Or(o, &Options{})
	out.Workers = cmp.Or(out.Workers, 32)
	out.Lease = cmp.Or(out.Lease, time.Minute)
	out.Poll = cmp.Or(out.Poll, 500*time.Millisecond)
	out.Grace = cmp.Or(out.Grace, 5*time.Second)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	return out
}

// PurgeStoredResponses returns a job that deletes stored responses of Idempotency-Keys older than
// store.IdempotencyRetention.
func PurgeStoredResponses(s *store.Store) func(context.Context) error {
	return func(ctx context.Context) error {
		return s.InBatches(ctx, func(tx *store.Tx, limit int) (int64, error) {
			return tx.PurgeStoredResponses(tx.Now().Add(-store.IdempotencyRetention), limit)
		})
	}
}
