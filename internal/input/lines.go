package input

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// LineReader reads lines and holds at most a limit of bytes of each in memory.
type LineReader struct {
	r     *bufio.Reader
	limit int
	buf   []byte
}

// NewLineReader returns a reader of lines of at most limit bytes.
func NewLineReader(r io.Reader, limit int) *LineReader {
	return &LineReader{r: bufio.NewReader(r), limit: limit}
}

// Next returns a line without its end, valid until the next call. For a line over the limit it
// returns the two ends of the line instead. The error is that of the reader; a last line without
// an end is a line.
func (l *LineReader) Next() (line []byte, long *LongText, err error) {
	if cap(l.buf) > 1<<20 {
		l.buf = nil // one long line does not keep its memory
	}
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case long != nil:
			long.Add(part)
		case len(l.buf)+len(part) > l.limit+len("\r\n"):
			long = &LongText{}
			long.Add(l.buf)
			long.Add(part)
			l.buf = nil
		default:
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (long != nil || len(l.buf) == 0 || !errors.Is(err, io.EOF)):
			return nil, long, err
		}
		if line = bytes.TrimSuffix(bytes.TrimSuffix(l.buf, []byte("\n")), []byte("\r")); len(line) > l.limit {
			long = &LongText{}
			long.Add(line)
		}
		if long != nil {
			line = nil
		}
		return line, long, nil
	}
}

// LongTextEnd is the size of each end of a LongText, in bytes.
const LongTextEnd = 256

// LongText holds the two ends of a text that is too long to keep.
type LongText struct{ Head, Tail []byte }

// Add appends the next part of the text.
func (t *LongText) Add(part []byte) {
	t.Head = append(t.Head, part[:min(len(part), LongTextEnd-len(t.Head))]...)
	t.Tail = append(t.Tail, part[max(0, len(part)-LongTextEnd):]...)
	t.Tail = bytes.Clone(t.Tail[max(0, len(t.Tail)-LongTextEnd):])
}
