package upstream

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"regexp"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// lineReader reads lines and holds at most limit bytes of each in memory.
type lineReader struct {
	r     *bufio.Reader
	limit int
	buf   []byte
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), limit: limit}
}

// next returns a line without its end, valid until the next call. For a line over the limit it
// returns the two ends of the line instead. The error is that of the reader; a last line without
// an end is a line.
func (l *lineReader) next() (line []byte, over *oversized, err error) {
	if cap(l.buf) > 1<<20 {
		l.buf = nil // one large message does not keep its memory
	}
	l.buf = l.buf[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		switch {
		case over != nil:
			over.add(part)
		case len(l.buf)+len(part) > l.limit+1:
			over = &oversized{}
			over.add(l.buf)
			over.add(part)
			l.buf = nil
		default:
			l.buf = append(l.buf, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && (over != nil || len(l.buf) == 0 || !errors.Is(err, io.EOF)):
			return nil, over, err
		}
		return trimEnd(l.buf), over, nil
	}
}

func trimEnd(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		line = line[:n-1]
	}
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line
}

// oversizedEnd is the size of each kept end of an oversized message, in bytes.
const oversizedEnd = 256

// oversized holds the two ends of a message that is too large to keep. Servers write the id of a
// response before or after its result, so one of the ends has it.
type oversized struct {
	head, tail []byte
}

// add appends the next part of the message.
func (o *oversized) add(part []byte) {
	o.head = append(o.head, part[:min(len(part), oversizedEnd-len(o.head))]...)
	o.tail = append(o.tail, part[max(0, len(part)-oversizedEnd):]...)
	o.tail = bytes.Clone(o.tail[max(0, len(o.tail)-oversizedEnd):])
}

// responseID returns the id of the request that the message answers. It returns false for requests
// and notifications, and where neither end shows the id.
func (o *oversized) responseID() (jsonrpc.ID, bool) {
	raw, isRequest := o.idInHead()
	if last := trailingID().FindSubmatch(o.tail); raw == nil && last != nil {
		raw = last[1]
	}
	var id any
	if isRequest || json.Unmarshal(raw, &id) != nil || id == nil {
		return jsonrpc.ID{}, false
	}
	out, err := jsonrpc.MakeID(id)
	return out, err == nil
}

// idInHead reads the members that the head holds in full.
func (o *oversized) idInHead() (id []byte, isRequest bool) {
	dec := jsontext.NewDecoder(bytes.NewReader(o.head))
	if token, err := dec.ReadToken(); err != nil || token.Kind() != '{' {
		return nil, false
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return id, false
		}
		key := name.String()
		value, err := dec.ReadValue()
		switch {
		case key == "method":
			return nil, true
		case err != nil:
			return id, false
		case key == "id":
			id = bytes.Clone(value)
		}
	}
	return id, false
}

// trailingID matches an id among the last members of a message. What follows it closes the
// outermost object only, so the id cannot belong to a nested object.
func trailingID() *regexp.Regexp {
	return regexp.MustCompile(`[,{]\s*"id"\s*:\s*(-?\d+|"[^"\\]*")\s*(?:,\s*"jsonrpc"\s*:\s*"2\.0"\s*)?\}\s*$`)
}
