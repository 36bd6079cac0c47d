package upstream

import (
	"bytes"
	"io"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/input"
)

// messageHook receives messages in the order of their arrival. A message that it handles is not
// passed to the SDK.
type messageHook func(jsonrpc.Message) (taken bool)

// eventFilter filters a stream of server-sent events: it passes on valid messages and events of
// other names. A response over the limit becomes an error response.
type eventFilter struct {
	io.Closer
	in      *input.LineReader
	limit   int
	invalid *invalidMessages
	hook    messageHook
	out     []byte // filtered bytes that are not read yet
	err     error  // returned after out
	next    event
}

// event is an event that is being read.
type event struct {
	name, id, retry []byte
	data            []byte
	hasData         bool
	over            *input.LongText
}

func newEventFilter(body io.ReadCloser, limit int, garbage *invalidMessages, aside messageHook) *eventFilter {
	in := input.NewLineReader(body, limit+len("data: "))
	return &eventFilter{Closer: body, in: in, limit: limit, invalid: garbage, hook: aside}
}

// Read implements io.Reader.
func (e *eventFilter) Read(p []byte) (int, error) {
	for len(e.out) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		line, over, err := e.in.Next()
		e.err = err
		switch {
		case over != nil:
			over.Head = bytes.TrimPrefix(over.Head, []byte("data:"))
			e.next.over, e.next.data = over, nil
		case len(line) > 0:
			e.field(line)
		case err == nil:
			e.dispatch()
		}
		if err == io.EOF { //nolint:errorlint // readers return io.EOF unwrapped
			e.dispatch()
		}
	}
	n := copy(p, e.out)
	e.out = e.out[n:]
	return n, nil
}

func (e *eventFilter) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		e.next.name = bytes.Clone(value)
	case "id":
		e.next.id = bytes.Clone(value)
	case "retry":
		e.next.retry = bytes.Clone(value)
	case "data":
		e.data(value)
	}
}

func (e *eventFilter) data(value []byte) {
	next := &e.next
	switch {
	case next.over != nil:
		next.over.Add(value)
	case len(next.data)+len(value) > e.limit:
		next.over = &input.LongText{}
		next.over.Add(next.data)
		next.over.Add(value)
		next.data = nil
	default:
		if next.hasData {
			next.data = append(next.data, '\n')
		}
		next.data, next.hasData = append(next.data, value...), true
	}
}

// dispatch ends an event and encodes it for the reader.
func (e *eventFilter) dispatch() {
	next := e.next
	e.next = event{}
	isMessage := len(next.name) == 0 || string(next.name) == "message"
	if next.over != nil {
		next.data, next.hasData = nil, false
		if id, ok := responseIDOf(next.over); ok {
			next.data, next.hasData = errorResponse(id, tooLarge(e.limit)), true
		} else {
			e.invalid.add("")
		}
	} else if isMessage && len(next.data) > 0 {
		msg, err := jsonrpc.DecodeMessage(next.data)
		if err != nil {
			e.invalid.add(string(next.data[:min(len(next.data), maxSample)]))
		}
		if err != nil || e.hook(msg) {
			next.data, next.hasData = nil, false
		}
	}
	if isMessage && len(next.data) == 0 {
		next.name = nil // the SDK still reads the id of the event
	}
	e.out = next.encode()
}

func (n event) encode() []byte {
	var b bytes.Buffer
	for _, f := range []struct {
		name  string
		value []byte
	}{{"event: ", n.name}, {"id: ", n.id}, {"retry: ", n.retry}} {
		if len(f.value) > 0 {
			b.WriteString(f.name)
			b.Write(f.value)
			b.WriteByte('\n')
		}
	}
	if n.hasData {
		for line := range bytes.SplitSeq(n.data, []byte("\n")) {
			b.WriteString("data: ")
			b.Write(line)
			b.WriteByte('\n')
		}
	}
	if b.Len() > 0 {
		b.WriteByte('\n')
	}
	return b.Bytes()
}
