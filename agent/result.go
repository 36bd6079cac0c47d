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

// The causes of the end of a handler's context.
var (
	// ErrCancelled means that the task was cancelled.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrMaxDuration means that the work took longer than its hint max_duration_seconds.
	ErrMaxDuration = errors.New("the task exceeded its maximum duration")
	// ErrStopping means that the agent stops and the work did not end in time.
	ErrStopping = errors.New("the agent is stopping")
)

// The exit codes of work that was ended, as in shells.
const (
	// ExitMaxDuration is that of work that exceeded its maximum duration.
	ExitMaxDuration = 124
	exitCancelled   = 130
)

// Result is the result of a piece of work.
type Result struct {
	// Output is the result's text. What was written to the Work was sent already and need not be
	// repeated.
	Output string
	// ExitCode above 0 makes the result a failure.
	ExitCode int
	// CPUTime and GPUMemoryMB are the resources that the work used, 0 if unknown.
	CPUTime     time.Duration
	GPUMemoryMB int64
}

// failureError is an error that is sent to the server as an error message.
type failureError struct{ failure envelope.Failure }

func (r *failureError) Error() string { return r.failure.Message }

// Unsupported is the error of a handler that cannot do this type of work (5006). The server does
// not retry it.
func Unsupported(workType string) error {
	return &failureError{envelope.UnsupportedWorkType(workType, nil)}
}

// Invalid is the error of invalid parameters (5003). The server does not retry it.
func Invalid(format string, args ...any) error {
	return &failureError{envelope.InvalidMessage(envelope.Problem{Field: "payload.parameters", Detail: fmt.Sprintf(format, args...)})}
}

// ResourceLimit is the error of work that requires more of a resource than is available (5005).
// limit is its name with the unit, such as memory_mb. The server may retry it, with the same
// agent or another.
func ResourceLimit(limit string, available, required int64) error {
	return &failureError{envelope.ResourceLimit(limit, available, required)}
}

// outcome is the outcome of a request as it is stored in a Cache.
type outcome struct {
	Outcome  envelope.Outcome   `json:"outcome,omitempty"`
	ExitCode int64              `json:"exit_code,omitempty"`
	Output   string             `json:"output,omitempty"`
	Used     envelope.Resources `json:"used,omitzero"`
	Models   map[string]int64   `json:"models,omitempty"`
	Reason   string             `json:"reason,omitempty"` // of a failure, "" if only the exit code is known
	Error    *envelope.Failure  `json:"error,omitempty"`

	notStarted bool // the handler was not called
}

// final reports whether repeated requests get the same outcome. An outcome that the server
// retries must not be stored: a failure that may be temporary, and work that the server cancelled
// because it seemed to hang.
func (a outcome) final() bool {
	if a.Error != nil {
		return !a.Error.Code.Retryable()
	}
	return a.Outcome != envelope.OutcomeCancelled
}

func (a outcome) summary() string {
	if a.Error != nil {
		return fmt.Sprintf("error %d", a.Error.Code)
	}
	return string(a.Outcome)
}

// newOutcome is the outcome of a handler that returned r and err after a time.
func newOutcome(ctx context.Context, w *Work, r Result, err error, took time.Duration) outcome {
	total, byModel := w.used()
	a := outcome{Outcome: envelope.OutcomeSuccess, ExitCode: int64(max(r.ExitCode, 0)), Output: envelope.Clean(r.Output), Models: byModel,
		Used: envelope.Resources{DurationSeconds: int64(took.Seconds()), GPUVRAMMB: max(r.GPUMemoryMB, 0),
			CPUTimeMS: max(r.CPUTime.Milliseconds(), 0), Tokens: total}}
	var refused *failureError
	cause := context.Cause(ctx)
	switch {
	case errors.As(err, &refused):
		a.Error = &refused.failure
	case err == nil && a.ExitCode == 0: // it succeeded, even if the context has ended
	case errors.Is(cause, ErrStopping):
		a.Error = new(envelope.Unavailable(w.agentID, nil))
	case errors.Is(cause, ErrCancelled):
		a.fail(envelope.OutcomeCancelled, exitCancelled, ErrCancelled)
	case errors.Is(cause, ErrMaxDuration):
		a.fail(envelope.OutcomeFailed, ExitMaxDuration, ErrMaxDuration)
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
	a.Reason = envelope.Clean(err.Error())
	a.Output += a.Reason
}

// payloads are the messages that carry the outcome: output that is too long for one message
// precedes it in chunks, as a further step (Chiffon §Large Payloads).
func (a outcome) payloads(request envelope.WorkRequest, last envelope.WorkStatus) []envelope.Payload {
	if a.Error != nil {
		return []envelope.Payload{*a.Error}
	}
	result := envelope.WorkResult{TaskID: request.TaskID, Status: a.Outcome, ExitCode: a.ExitCode, Output: a.Output, Resources: a.Used}
	if len(a.Output) <= envelope.MaxChunk {
		return []envelope.Payload{result}
	}
	var all []envelope.Payload
	for _, c := range envelope.Split(a.Output, envelope.MaxChunk) {
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

// custom is the result's x_custom_fields, nil for none.
func (a outcome) custom() json.RawMessage {
	if len(a.Models) == 0 && a.Reason == "" || a.Error != nil {
		return nil
	}
	data, err := json.Marshal(struct {
		Models map[string]int64 `json:"tokens_by_model,omitempty"`
		Reason string           `json:"failure,omitempty"`
	}{a.Models, a.Reason})
	if err != nil {
		panic(err) // strings and integers are always encodable
	}
	return data
}
