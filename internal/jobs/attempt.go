package jobs

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/cenkalti/backoff/v5"

	"comet/store"
)

// attempt is one run of a claimed job.
type attempt struct {
	registration
	runner *Runner
	job    *Job
	began  time.Time
}

// run calls the handler and stores the result. Its error is that of storing it;
// store.ErrLeaseLost means that another worker has claimed the job.
func (a *attempt) run() error {
	if a.spent(a.job.Attempt - 1) { // the last attempts crashed their process
		return a.giveUp(errors.New("no attempt ended"))
	}
	// The margin leaves time to store the end before the lease ends.
	a.began = a.runner.store.Now()
	left := a.job.LeaseUntil.Sub(a.began) - a.runner.opts.Lease/10
	ctx, cancel := context.WithTimeout(a.runner.work, left)
	defer cancel()
	err := a.call(ctx)
	switch {
	case err == nil && a.job.finished:
		return nil
	case err == nil:
		return a.write(a.finish)
	case a.runner.work.Err() != nil, a.interval > 0 && ctx.Err() != nil: // stopped, or recurring work that needs another lease
		return a.release()
	case errors.Is(err, store.ErrLeaseLost):
		return err
	case a.spent(a.job.Attempt):
		return a.giveUp(err)
	}
	return a.retry(err)
}

// call runs the handler in its own goroutine, so that runtime.Goexit is a failure like a panic.
func (a *attempt) call(ctx context.Context) (err error) {
	done := make(chan struct{})
	returned := false
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
			} else if !returned {
				err = errors.New("the handler ended its goroutine")
			}
		}()
		err = a.handle(ctx, a.job)
		returned = true
	}()
	<-done
	return err
}

func (a *attempt) spent(attempts int) bool {
	return a.policy.MaxAttempts > 0 && attempts >= a.policy.MaxAttempts
}

// release makes the job due again at once, as if it had not been claimed.
func (a *attempt) release() error {
	return a.write(func(tx *store.Tx) error { return tx.Jobs().Release(a.job.Job) })
}

// finish deletes the job and, if it recurs, writes the next one, due an interval after this attempt began.
func (a *attempt) finish(tx *store.Tx) error {
	if err := tx.Jobs().Finish(a.job.Job); err != nil || a.interval == 0 {
		return err
	}
	_, err := tx.Jobs().Enqueue(store.Job{Kind: a.job.Kind, Key: a.job.Key, RunAt: a.began.Add(a.interval)})
	return err
}

func (a *attempt) retry(cause error) error {
	wait := a.policy.wait(a.job.Attempt)
	a.runner.log.Warn("a job failed and will be retried", "kind", a.job.Kind, "job", a.job.ID,
		"attempt", a.job.Attempt, "wait", wait, "error", cause)
	return a.write(func(tx *store.Tx) error { return tx.Jobs().Retry(a.job.Job, tx.Now().Add(wait), cause.Error()) })
}

func (a *attempt) giveUp(cause error) error {
	a.runner.log.Error("a job failed in its last attempt and is deleted", "kind", a.job.Kind, "job", a.job.ID, "key", a.job.Key,
		"attempt", a.job.Attempt, "error", cause)
	return a.write(func(tx *store.Tx) error { return tx.Jobs().Finish(a.job.Job) })
}

// write stores the attempt's end, even while the runner is stopping.
func (a *attempt) write(fn func(*store.Tx) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(a.runner.work), a.runner.opts.Lease)
	defer cancel()
	return a.runner.store.Write(ctx, fn)
}

// wait returns the time between the attempt with that number and the next.
func (p Policy) wait(attempt int) time.Duration {
	b := backoff.NewExponentialBackOff()
	b.InitialInterval, b.Multiplier, b.MaxInterval = p.Backoff, 2, p.MaxBackoff
	d := b.NextBackOff()
	for i := 1; i < min(attempt, 64); i++ { // the limit is reached long before
		d = b.NextBackOff()
	}
	return min(d, p.MaxBackoff)
}
