package background

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
)

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
