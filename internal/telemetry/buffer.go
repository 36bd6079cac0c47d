package telemetry

import (
	"io"
	"sync"
	"time"
)

const (
	// bufferSize is the number of buffered bytes at which a Buffer writes.
	bufferSize = 64 << 10
	// bufferDelay is the maximum time for which a Buffer delays bytes.
	bufferDelay = 100 * time.Millisecond
)

// Buffer writes log records together: at 64 KiB, 100 ms after the first one, and when Flush is
// called. A logger of NewLogger calls Flush after each warning and error. Buffer is safe for
// concurrent use, and a slow w delays the callers of Write.
type Buffer struct {
	w io.Writer

	mu    sync.Mutex
	buf   []byte
	timed bool // a flush is due
}

// NewBuffer returns a buffer in front of w. The caller calls Flush before the program exits.
func NewBuffer(w io.Writer) *Buffer { return &Buffer{w: w} }

// Write implements io.Writer. The error of a delayed write is dropped, because loggers ignore it.
func (b *Buffer) Write(record []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.buf = append(b.buf, record...); len(b.buf) >= bufferSize {
		return len(record), b.flush()
	}
	if !b.timed {
		b.timed = true
		time.AfterFunc(bufferDelay, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.timed = false
			_ = b.flush()
		})
	}
	return len(record), nil
}

// Flush writes the buffered bytes.
func (b *Buffer) Flush() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flush()
}

func (b *Buffer) flush() error {
	if len(b.buf) == 0 {
		return nil
	}
	_, err := b.w.Write(b.buf)
	if b.buf = b.buf[:0]; cap(b.buf) > 2*bufferSize {
		b.buf = nil
	}
	return err
}
