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

// Event is one server-sent event.
type Event struct {
	Name, ID, Retry []byte
	// Data is nil for an event without data and for one over the limit; Long has the two ends of the
	// latter.
	Data []byte
	Long *LongText
}

// EventReader reads a stream of server-sent events and holds at most a limit of bytes of each in
// memory.
type EventReader struct {
	lines *LineReader
	limit int
}

// NewEventReader returns a reader of events with at most limit bytes of data.
func NewEventReader(r io.Reader, limit int) *EventReader {
	return &EventReader{NewLineReader(r, limit+len("data: ")), limit}
}

// Next returns the next event, which may be empty. The error is that of the reader; it is returned
// with the last, incomplete event.
func (r *EventReader) Next() (e Event, err error) {
	for {
		line, long, err := r.lines.Next()
		switch {
		case long != nil:
			long.Head = bytes.TrimPrefix(long.Head, []byte("data:"))
			e.Long, e.Data = long, nil
		case len(line) > 0:
			e.addField(line, r.limit)
		case err == nil:
			return e, nil
		}
		if err != nil {
			return e, err
		}
	}
}

func (e *Event) addField(line []byte, limit int) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		e.Name = bytes.Clone(value)
	case "id":
		e.ID = bytes.Clone(value)
	case "retry":
		e.Retry = bytes.Clone(value)
	case "data":
		e.addData(value, limit)
	}
}

func (e *Event) addData(value []byte, limit int) {
	switch {
	case e.Long != nil:
		e.Long.Add(value)
	case len(e.Data)+len(value) > limit:
		e.Long = &LongText{}
		e.Long.Add(e.Data)
		e.Long.Add(value)
		e.Data = nil
	case e.Data == nil:
		e.Data = append([]byte{}, value...)
	default:
		e.Data = append(append(e.Data, '\n'), value...)
	}
}
