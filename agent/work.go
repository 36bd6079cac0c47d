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
	"unicode/utf8"

	"github.com/google/uuid"

	"comet/internal/wire/envelope"
)

// Work is one piece of work. It is safe for concurrent use, and of no use once the
// function it was given to has returned.
type Work struct {
	agentID string
	request envelope.Envelope // the first that asked
	payload envelope.WorkRequest
	// send passes a status on. It blocks while too much waits for the server.
	send func(envelope.WorkStatus) error

	mu     sync.Mutex
	status envelope.WorkStatus // as it was sent, or is to be sent
	buffer []byte              // output that was not sent
	dirty  bool                // the status was not sent
	ended  bool
	models map[string]int64
	total  int64

	statusSent     atomic.Bool // a status was sent
	outputRejected atomic.Bool // the server takes no more output
}

// Hints are what the asker knows about the work beforehand; 0 is not given.
type Hints struct {
	// MaxDuration is the longest it may take. The context ends then.
	MaxDuration time.Duration
	MaxMemoryMB int64
	// MaxTokens is the task's budget.
	MaxTokens int64
	// Other are hints that the protocol does not name, as JSON.
	Other map[string]json.RawMessage
}

// Type is the kind of work, a name that was given to Handle.
func (w *Work) Type() string { return w.payload.WorkType }

// TaskID names the task.
func (w *Work) TaskID() uuid.UUID { return w.payload.TaskID }

// RequestID is the same whenever the task is tried. Another asker may use the same one for
// another task.
func (w *Work) RequestID() uuid.UUID { return w.request.RequestID }

// key is what the work is known by here.
func (w *Work) key() Key { return Key{Request: w.RequestID(), Task: w.TaskID()} }

// TraceID is what the asker follows the task by through other systems.
func (w *Work) TraceID() uuid.UUID { return w.request.TraceID }

// Parameters is a JSON object.
func (w *Work) Parameters() json.RawMessage { return slices.Clone(w.payload.Parameters) }

// Decode reads the parameters into v. The error is an Invalid, to be returned as it is.
func (w *Work) Decode(v any) error {
	if err := json.Unmarshal(w.payload.Parameters, v); err != nil {
		return Invalid("payload.parameters cannot be used: %s", err)
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

// Progress tells how far the work is, 0 to 100 percent, and what it is about. A new name
// begins a new step. It is sent within a moment; it blocks while too much waits for the
// server, and returns an error only where nothing can be sent any more.
func (w *Work) Progress(percent int, step string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if step = clean(step); w.status.Step == nil || w.status.Step.Name != step {
		// What came before belongs to the step before.
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

// Tokens adds to the tokens the work has used, to be charged with its result.
func (w *Work) Tokens(n int64) { w.TokensOf("", n) }

// TokensOf is Tokens that names the model.
func (w *Work) TokensOf(model string, n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n = min(max(n, 0), envelope.MaxTokens-w.total)
	if w.total += n; model != "" {
		if w.models == nil {
			w.models = map[string]int64{}
		}
		w.models[clean(model)] += n
	}
}

func (w *Work) used() (total int64, byModel map[string]int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total, maps.Clone(w.models)
}

// errEnded is output of work whose function has returned.
var errEnded = errors.New("agent: the work has ended")

// startDelay is how long work may take before it is told that it has begun. What ends sooner
// is told with its result alone: one commit of the server less, of three.
const startDelay = 20 * time.Millisecond

// String is for logs.
func (w *Work) String() string { return fmt.Sprintf("%s %s", w.Type(), w.TaskID()) }

// maxBatch is how much output goes into one message, in bytes.
const maxBatch = 64 << 10

// Write adds to the output of the step that the work is at. It is sent within a moment,
// in pieces of up to 64 KiB; what is no UTF-8 is replaced. It blocks while too much
// waits for the server, and returns an error where nothing can be sent any more: the
// work's context has ended and there is no room, or its function has returned.
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

// flushBuffer sends what has gathered.
func (w *Work) flushBuffer() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

// flush sends output and progress that were not sent. A character whose end has not
// come yet stays behind. The caller holds the lock.
func (w *Work) flush() error {
	if w.ended {
		return errEnded
	}
	if w.outputRejected.Load() {
		w.buffer = nil
	}
	text, rest := splitUTF8(w.buffer)
	if len(text) == 0 && !w.dirty {
		return nil
	}
	return w.sendStatus(text, rest)
}

// sendStatus sends the status with some output. What could not be sent stays.
func (w *Work) sendStatus(text, rest []byte) error {
	status := w.status
	if len(text) > 0 {
		step := envelope.Step{Number: 1}
		if w.status.Step != nil {
			step = *w.status.Step
		} else {
			w.status.Step = &envelope.Step{Number: 1}
		}
		step.Output = clean(string(text))
		status.Step = &step
	}
	if err := w.send(status); err != nil {
		return err
	}
	w.buffer, w.dirty = append(w.buffer[:0], rest...), false
	w.statusSent.Store(true)
	return nil
}

// resendStatus sends the status as it was, so that the work is not taken for hung.
func (w *Work) resendStatus() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	text, rest := splitUTF8(w.buffer)
	return w.sendStatus(text, rest)
}

// sendStarted tells that the work is done, where nothing else has told it yet.
func (w *Work) sendStarted() error {
	if w.statusSent.Load() {
		return nil
	}
	return w.resendStatus()
}

// close sends the rest and returns the last status. Nothing is sent afterwards.
func (w *Work) close(send func(envelope.WorkStatus) error) envelope.WorkStatus {
	w.setSend(send)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.outputRejected.Load() && (len(w.buffer) > 0 || w.dirty) {
		_ = w.sendStatus(w.buffer, nil) // nothing can be sent any more
	}
	w.ended = true
	return w.status
}

func (w *Work) setSend(send func(envelope.WorkStatus) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send = send
}

// splitUTF8 splits off the beginning of a character at the end of text.
func splitUTF8(text []byte) (complete, rest []byte) {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax+1; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return text[:i], text[i:]
			}
			break
		}
	}
	return text, nil
}
