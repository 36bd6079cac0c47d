package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"comet/internal/wire/envelope"
)

// The causes with which the context of a piece of work ends.
var (
	// ErrCancelled is work that was taken back.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrMaxDuration is work that took longer than its hint max_duration_seconds.
	ErrMaxDuration = errors.New("the task took longer than it may")
	// ErrStopping is work that did not end within the patience of an agent that stops.
	ErrStopping = errors.New("the agent is stopping")
)

// The exit codes of work that ended by itself in no way, as shells have them.
const (
	exitMaxDuration = 124
	exitCancelled   = 130
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

// failureError is an error that the server must learn of as an error message.
type failureError struct{ failure envelope.Failure }

func (r *failureError) Error() string { return r.failure.Message }

// Unsupported is the error of a function that does not do this kind of work after all
// (5006). It is not tried again.
func Unsupported(workType string) error {
	return &failureError{envelope.UnsupportedWorkType(workType, nil)}
}

// Invalid is the error of parameters that cannot be used (5003). It is not tried again.
func Invalid(format string, args ...any) error {
	return &failureError{envelope.InvalidMessage(envelope.Problem{Field: "payload.parameters", Detail: fmt.Sprintf(format, args...)})}
}

// ResourceLimit is the error of work that needs more of something than there is (5005).
// limit names it with its unit, such as memory_mb. It may be tried again, here or by
// another agent.
func ResourceLimit(limit string, available, required int64) error {
	return &failureError{envelope.ResourceLimit(limit, available, required)}
}

// outcome is how a request ended, in the form in which a Cache keeps it.
type outcome struct {
	Outcome  envelope.Outcome   `json:"outcome,omitempty"`
	ExitCode int64              `json:"exit_code,omitempty"`
	Output   string             `json:"output,omitempty"`
	Used     envelope.Resources `json:"used,omitzero"`
	Models   map[string]int64   `json:"models,omitempty"`
	Error    *envelope.Failure  `json:"error,omitempty"`

	notStarted bool // nothing was done
}

// final reports whether the same request is answered the same for ever. What the server
// tries again must not be remembered, or trying would be in vain: a failure that may be
// gone the next time, and work it took back because it thought the agent hung.
func (a outcome) final() bool {
	if a.Error != nil {
		return !a.Error.Code.Retryable()
	}
	return a.Outcome != envelope.OutcomeCancelled
}

// summary is the answer in a word, for the log.
func (a outcome) summary() string {
	if a.Error != nil {
		return fmt.Sprintf("error %d", a.Error.Code)
	}
	return string(a.Outcome)
}

// newOutcome is what a function's end means. took is how long it ran.
func newOutcome(ctx context.Context, w *Work, r Result, err error, took time.Duration) outcome {
	total, byModel := w.used()
	a := outcome{Outcome: envelope.OutcomeSuccess, ExitCode: int64(max(r.ExitCode, 0)), Output: clean(r.Output), Models: byModel,
		Used: envelope.Resources{DurationSeconds: int64(took.Seconds()), GPUVRAMMB: max(r.GPUMemoryMB, 0),
			CPUTimeMS: max(r.CPUTime.Milliseconds(), 0), Tokens: total}}
	var refused *failureError
	cause := context.Cause(ctx)
	switch {
	case errors.As(err, &refused):
		a.Error = &refused.failure
	case err == nil && a.ExitCode == 0: // it was done, even if nobody waits for it any more
	case errors.Is(cause, ErrStopping):
		a.Error = new(envelope.Unavailable(w.agentID, nil))
	case errors.Is(cause, ErrCancelled):
		a.fail(envelope.OutcomeCancelled, exitCancelled, ErrCancelled)
	case errors.Is(cause, ErrMaxDuration):
		a.fail(envelope.OutcomeFailed, exitMaxDuration, ErrMaxDuration)
	default:
		a.fail(envelope.OutcomeFailed, max(a.ExitCode, 1), err)
	}
	return a
}

func (a *outcome) fail(outcome envelope.Outcome, code int64, err error) {
	a.Outcome, a.ExitCode = outcome, code
	if err == nil {
		return
	}
	if a.Output != "" && !strings.HasSuffix(a.Output, "\n") {
		a.Output += "\n"
	}
	a.Output += clean(err.Error())
}

// payloads are the messages that give the answer: what is too long for one message goes
// before it in chunks of the step that was the last (Chiffon §Large Payloads).
func (a outcome) payloads(request envelope.WorkRequest, last envelope.WorkStatus) []envelope.Payload {
	if a.Error != nil {
		return []envelope.Payload{*a.Error}
	}
	result := envelope.WorkResult{TaskID: request.TaskID, Status: a.Outcome, ExitCode: a.ExitCode, Output: a.Output, Resources: a.Used}
	if len(a.Output) <= envelope.MaxChunk {
		return []envelope.Payload{result}
	}
	var all []envelope.Payload
	for _, c := range envelope.Split(a.Output) {
		status := last
		status.Step = &envelope.Step{Number: 1, Name: "result", Output: c.Text, Chunk: c.Range}
		if last.Step != nil {
			status.Step.Number = last.Step.Number + 1
		}
		all = append(all, status)
	}
	result.Output = ""
	return append(all, result)
}

// custom is x_custom_fields of the result, nil for none.
func (a outcome) custom() json.RawMessage {
	if len(a.Models) == 0 || a.Error != nil {
		return nil
	}
	data, err := json.Marshal(map[string]any{"tokens_by_model": a.Models})
	if err != nil {
		panic(err) // names and numbers
	}
	return data
}

// clean is text that a message can hold.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
