package input

import (
	"bytes"
	"io"
)

// Event is one server-sent event.
type Event struct {
	Name, ID, Retry []byte
	// Data is nil for an event without data, and for one over the limit, of which Long has the two
	// ends.
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

// Next returns the next event, which may be empty. The error is that of the reader; with it comes
// the last event, whose end is missing.
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
