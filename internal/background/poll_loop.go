package background

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"comet/internal/errs"
)

// PollOptions configures NewPollLoop.
type PollOptions struct {
	// Task names the work in the log and in errors, such as "claiming jobs".
	Task string
	// Logger receives the first failure of a series and the recovery.
	Logger *slog.Logger
	// Signal starts the next run early, like Wake; default none.
	Signal <-chan struct{}
	// MaxBackoff is the longest wait after a failure, default MaxBackoff; the first one is a hundredth.
	MaxBackoff time.Duration
}

// PollLoop repeats a function: at once when it is woken, otherwise after the time that the function
// returned. After failures it waits with backoff, also when it is woken.
type PollLoop struct {
	opts     PollOptions
	poll     func(context.Context) (time.Duration, error)
	wake     Signal
	failures *FailureLog
	running  atomic.Bool
}

// NewPollLoop returns a loop that repeats poll. The duration that poll returns is the time until the
// next run.
func NewPollLoop(opts PollOptions, poll func(context.Context) (time.Duration, error)) *PollLoop {
	opts.MaxBackoff = cmp.Or(opts.MaxBackoff, MaxBackoff)
	return &PollLoop{opts: opts, poll: poll, wake: NewSignal(), failures: NewFailureLog(opts.Logger)}
}

// Wake starts the next run now, or after the current one.
func (p *PollLoop) Wake() { p.wake.Set() }

// Run runs the loop until ctx ends; it is the function of a Loop.
func (p *PollLoop) Run(ctx context.Context) {
	p.running.Store(true)
	defer p.running.Store(false)
	failed := NewBackoff(p.opts.MaxBackoff)
	for ctx.Err() == nil {
		idle, err := p.poll(ctx)
		p.failures.Report(ctx, p.opts.Task, err)
		if err != nil {
			_ = Sleep(ctx, failed.NextBackOff())
			continue
		}
		failed.Reset()
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-p.opts.Signal:
		case <-time.After(idle):
		}
	}
}

// Check returns errs.Unavailable if the loop does not run or its last run failed.
func (p *PollLoop) Check() error {
	switch {
	case !p.running.Load():
		return errs.New(errs.Unavailable, "%s has not started or was stopped", p.opts.Task)
	case p.failures.Failing(p.opts.Task):
		return errs.New(errs.Unavailable, "%s fails", p.opts.Task)
	}
	return nil
}
