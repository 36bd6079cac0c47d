package agent

import (
	"errors"
	"fmt"
	"time"

	"comet/internal/wire/envelope"
)

// The causes with which the context of a piece of work ends.
var (
	// ErrCancelled is work that was taken back.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrDuration is work that took longer than its hint max_duration_seconds.
	ErrDuration = errors.New("the task took longer than it may")
	// ErrStopping is work that did not end within the patience of an agent that stops.
	ErrStopping = errors.New("the agent is stopping")
)

// The exit codes of work that ended by itself in no way, as shells have them.
const (
	exitTimeout   = 124
	exitCancelled = 130
)

// Result is what a piece of work came to.
type Result struct {
	// Output is the answer, or the end of a log. What was written to the Work was sent
	// already and need not be repeated.
	Output string
	// ExitCode above 0 makes the result a failure.
	ExitCode int
	// CPUTime and GPUMemoryMB are what the work used, 0 where it is not known.
	CPUTime     time.Duration
	GPUMemoryMB int64
}

// refusal is an error that the server must learn of as an error message.
type refusal struct{ failure envelope.Failure }

func (r *refusal) Error() string { return r.failure.Message }

// Unsupported is the error of a function that does not do this kind of work after all
// (5006). It is not tried again.
func Unsupported(workType string) error {
	return &refusal{envelope.UnsupportedWorkType(workType, nil)}
}

// Invalid is the error of parameters that cannot be used (5003). It is not tried again.
func Invalid(format string, args ...any) error {
	return &refusal{envelope.InvalidMessage(envelope.Problem{Field: "payload.parameters", Detail: fmt.Sprintf(format, args...)})}
}

// ResourceLimit is the error of work that needs more of something than there is (5005).
// limit names it with its unit, such as memory_mb. It may be tried again, here or by
// another agent.
func ResourceLimit(limit string, available, required int64) error {
	return &refusal{envelope.ResourceLimit(limit, available, required)}
}
