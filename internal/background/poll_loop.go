package background

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
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
		return errs.New(errs.Unavailable, "%s failed and will be retried", p.opts.Task)
	}
	return nil
}

// FailureLog logs repeated work that fails: the first failure and the recovery, however often it
// fails in between. It is safe for concurrent use.
type FailureLog struct {
	logger *slog.Logger

	mu      sync.Mutex
	failing map[string]bool // by task
}

// NewFailureLog returns a log that writes to logger, nil to discard.
func NewFailureLog(logger *slog.Logger) *FailureLog {
	return &FailureLog{logger: cmp.Or(logger, slog.New(slog.DiscardHandler)), failing: map[string]bool{}}
}

// Report takes the result of one run of a task, such as "reading events". It ignores errors after
// the end of ctx, because the program is stopping.
func (l *FailureLog) Report(ctx context.Context, task string, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	was := l.failing[task]
	l.failing[task] = err != nil
	l.mu.Unlock()
	switch {
	case err != nil && !was:
		l.logger.WarnContext(ctx, task+" failed; retrying", "error", err)
	case err == nil && was:
		l.logger.InfoContext(ctx, task+" succeeded again")
	}
}

// Failing reports whether the last run of a task failed.
func (l *FailureLog) Failing(task string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failing[task]
}
