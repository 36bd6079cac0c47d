package agent

import (
	"unicode/utf8"

	"comet/internal/wire/envelope"
)

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
	if w.deaf.Load() {
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

// tick sends what has gathered.
func (w *Work) tick() error {
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
	if w.deaf.Load() {
		w.buffer = nil
	}
	text, rest := whole(w.buffer)
	if len(text) == 0 && !w.dirty {
		return nil
	}
	return w.tell(text, rest)
}

// tell sends the status with some output. What could not be sent stays.
func (w *Work) tell(text, rest []byte) error {
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
	w.told.Store(true)
	return nil
}

// remind sends the status as it was, so that the work is not taken for hung.
func (w *Work) remind() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return nil
	}
	text, rest := whole(w.buffer)
	return w.tell(text, rest)
}

// begun tells that the work is done, where nothing else has told it yet.
func (w *Work) begun() error {
	if w.told.Load() {
		return nil
	}
	return w.remind()
}

// close sends the rest and returns the last status. Nothing is sent afterwards.
func (w *Work) close(send func(envelope.WorkStatus) error) envelope.WorkStatus {
	w.sendBy(send)
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.deaf.Load() && (len(w.buffer) > 0 || w.dirty) {
		_ = w.tell(w.buffer, nil) // nothing can be sent any more
	}
	w.ended = true
	return w.status
}

func (w *Work) sendBy(send func(envelope.WorkStatus) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send = send
}

// whole splits off the beginning of a character at the end of text.
func whole(text []byte) (complete, rest []byte) {
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
