package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"comet/internal/input"
	"comet/internal/wire/envelope"
)

// Work is one piece of work. It is safe for concurrent use until its handler has returned.
type Work struct {
	agentID string
	request envelope.Envelope // the first message of the request
	payload envelope.WorkRequest
	// send sends a status. It blocks while the outbox is full.
	send func(envelope.WorkStatus) error

	mu     sync.Mutex
	status envelope.WorkStatus // the newest one
	buffer []byte              // output that is not sent yet
	dirty  bool                // status is not sent yet
	ended  bool
	models map[string]int64
	total  int64

	statusSent     atomic.Bool // a status was sent
	outputRejected atomic.Bool // the server accepts no more output
}

// Type is the work type, a name that was registered with Handle.
func (w *Work) Type() string { return w.payload.WorkType }

// TaskID is the id of the task.
func (w *Work) TaskID() uuid.UUID { return w.payload.TaskID }

// RequestID is the same for all attempts at the task. Another requester may use the same id for
// another task.
func (w *Work) RequestID() uuid.UUID { return w.request.RequestID }

func (w *Work) key() Key { return Key{Request: w.RequestID(), Task: w.TaskID()} }

// TraceID is the trace id that the requester chose.
func (w *Work) TraceID() uuid.UUID { return w.request.TraceID }

// Parameters is the input of the task, a JSON object.
func (w *Work) Parameters() json.RawMessage { return slices.Clone(w.payload.Parameters) }

// Decode decodes the parameters into v. Its error is an Invalid, which the handler can return as
// it is.
func (w *Work) Decode(v any) error {
	if err := json.Unmarshal(w.payload.Parameters, v); err != nil {
		return Invalid("payload.parameters is invalid: %s", err)
	}
	return nil
}

// Hints returns the hints of the request.
func (w *Work) Hints() Hints {
	h := w.payload.Hints
	out := Hints{MaxDuration: time.Duration(h.MaxDurationSeconds) * time.Second, MaxMemoryMB: h.MaxMemoryMB, MaxTokens: h.MaxTokens}
	if len(h.Other) > 0 {
		out.Other = map[string]json.RawMessage{}
		for _, m := range h.Other {
			out.Other[m.Name] = m.Value
		}
	}
	return out
}

// Progress reports how much is done, 0 to 100 percent, and the name of the step. A new name
// starts a new step. The report is sent within Options.Flush; Progress blocks while the outbox is
// full, and returns an error only if nothing can be sent any more.
func (w *Work) Progress(percent int, step string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step = envelope.Clean(step); w.status.Step == nil || w.status.Step.Name != step {
		// Buffered output belongs to the previous step.
		if err := w.flush(); err != nil {
			return err
		}
		number := 1
		if w.status.Step != nil {
			number += w.status.Step.Number
		}
		w.status.Step = &envelope.Step{Number: number, Name: step}
	}
	w.status.Progress, w.dirty = min(max(percent, 0), 100), true
	return nil
}

// Tokens adds to the tokens that the work has used; they are charged with its result.
func (w *Work) Tokens(n int64) { w.TokensOf("", n) }

// TokensOf is Tokens for a named model.
func (w *Work) TokensOf(model string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(max(n, 0), envelope.MaxTokens-w.total)
	if w.total += n; model != "" {
		if w.models == nil {
			w.models = map[string]int64{}
		}
		w.models[envelope.Clean(model)] += n
	}
}

func (w *Work) used() (total int64, byModel map[string]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, maps.Clone(w.models)
}

// errEnded is the error of output after the handler has returned.
var errEnded = errors.New("agent: the work has ended")

// startDelay is how long work may take before its start is reported. Work that ends sooner is
// reported with its result alone, which saves the server one commit of three.
const startDelay = 20 * time.Millisecond

// String is the work type and the task id, for logs.
func (w *Work) String() string { return fmt.Sprintf("%s %s", w.Type(), w.TaskID()) }

// maxBatch is how much output one message has, in bytes.
const maxBatch = 64 << 10

// Write adds to the output of the current step. It is sent within Options.Flush, in pieces of up
// to 64 KiB; bytes that are not UTF-8 are replaced. Write blocks while the outbox is full, and
// returns an error if nothing can be sent any more: the work's context has ended and there is no
// space, or the handler has returned.
func (w *Work) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return 0, errEnded
	}
	if w.outputRejected.Load() {
		return len(p), nil
	}
	for done := 0; done < len(p); {
		n := min(len(p)-done, maxBatch-len(w.buffer))
		w.buffer = append(w.buffer, p[done:done+n]...)
		done += n
		if len(w.buffer) < maxBatch {
			break
		}
		if err := w.flush(); err != nil {
			return done, err
		}
	}
	return len(p), nil
}

// flushBuffer sends the buffered output and progress.
func (w *Work) flushBuffer() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

// flush sends buffered output and progress. An incomplete character at the end stays in the
// buffer. The caller holds the lock.
func (w *Work) flush() error {
	if w.ended {
		return errEnded
	}
	if w.outputRejected.Load() {
		w.buffer = nil
	}
	text, rest := input.SplitRune(w.buffer)
	if len(text) == 0 && !w.dirty {
		return nil
	}
	return w.sendStatus(text, rest)
}

// sendStatus sends the status with output; rest stays in the buffer. If sending fails, everything
// stays.
func (w *Work) sendStatus(text, rest []byte) error {
	status := w.status
	if len(text) > 0 {
		step := envelope.Step{Number: 1}
		if w.status.Step != nil {
			step = *w.status.Step
		} else {
			w.status.Step = &envelope.Step{Number: 1}
		}
		step.Output = envelope.Clean(string(text))
		status.Step = &step
	}
	if err := w.send(status); err != nil {
		return err
	}
	w.buffer, w.dirty = append(w.buffer[:0], rest...), false
	w.statusSent.Store(true)
	return nil
}

// resendStatus sends the status again, so that the server does not take the work for hung.
func (w *Work) resendStatus() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	text, rest := input.SplitRune(w.buffer)
	return w.sendStatus(text, rest)
}

// close sends the rest and returns the last status. Nothing is sent afterwards.
func (w *Work) close(send func(envelope.WorkStatus) error) envelope.WorkStatus {
	w.setSend(send)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.outputRejected.Load() && (len(w.buffer) > 0 || w.dirty) {
		_ = w.sendStatus(w.buffer, nil) // the work has ended; the error has no reader
	}
	w.ended = true
	return w.status
}

func (w *Work) setSend(send func(envelope.WorkStatus) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send = send
}
