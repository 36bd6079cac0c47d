// Package stdio connects MCP clients over standard input and output, one message per line: with an
// MCP server of this process (NewTransport), or with one over HTTP (Relay). Every request gets a
// response.
package stdio

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/input"
)

// Check checks a line of a client: a message or, if batches is true, a batch. It returns how many
// responses the end of the input waits for, and the reply to an invalid line, nil for a valid one.
type Check func(line []byte, batches bool) (requests int, reply any)

// connection is the connection of one client. The SDK's connection ends at the first invalid line and
// drops pending requests at the end of the input. This one replies to invalid lines and completes them.
type connection struct {
	lines  *input.LineReader
	out    io.WriteCloser
	check  Check
	closed chan struct{} // closed by Close
	close  sync.Once

	pending    []byte            // rest of the line that the SDK reads
	writing    sync.Mutex        // one line to the client at a time
	unanswered int               // requests without a response; guarded by writing
	idle       background.Signal // has an element when unanswered may be 0
	batches    bool              // the protocol version has batches
}

// NewTransport returns the transport of one client over in and out, one message per line.
func NewTransport(in io.Reader, out io.WriteCloser, check Check) mcp.Transport {
	c := &connection{
		lines: input.NewLineReader(in, maxLine), out: out, check: check,
		closed: make(chan struct{}), idle: background.NewSignal(), batches: true,
	}
	return &mcp.IOTransport{Reader: io.NopCloser(c), Writer: connectionWriter{c}}
}

// Read implements io.Reader. It returns valid lines, and io.EOF after the pending responses.
func (c *connection) Read(p []byte) (int, error) {
	for len(c.pending) == 0 {
		line, long, err := c.lines.Next()
		switch line = bytes.TrimSpace(line); {
		case long != nil:
			c.writing.Lock()
			c.reply(ErrorResponse(nil, lineTooLong()))
			c.writing.Unlock()
		case len(line) > 0 && c.accept(line):
			c.pending = append(bytes.Clone(line), '\n')
		}
		if err != nil {
			c.drain()
			return 0, io.EOF // a disconnected client is not a failure
		}
	}
	n := copy(p, c.pending)
	c.pending = c.pending[n:]
	return n, nil
}

// accept reports whether a line is valid. It replies to an invalid line.
func (c *connection) accept(line []byte) bool {
	c.writing.Lock()
	defer c.writing.Unlock()
	requests, reply := c.check(line, c.batches)
	if reply != nil {
		c.reply(reply)
		return false
	}
	c.unanswered += requests
	return true
}

// reply replies to a line. The caller holds c.writing.
func (c *connection) reply(reply any) {
	text, _ := json.Marshal(reply) // cannot fail: it was decoded from JSON
	_, _ = c.out.Write(append(text, '\n'))
}

func (c *connection) drain() {
	late := time.After(drainTimeout)
	for {
		c.writing.Lock()
		answered := c.unanswered <= 0
		c.writing.Unlock()
		if answered {
			return
		}
		select {
		case <-c.idle:
		case <-late:
			return
		case <-c.closed:
			return
		}
	}
}

type connectionWriter struct{ *connection }

// Write implements io.Writer. line is one message or a batch.
func (w connectionWriter) Write(line []byte) (int, error) {
	w.writing.Lock()
	defer w.writing.Unlock()
	n, err := w.out.Write(line)
	var list []json.RawMessage
	if len(line) == 0 || line[0] != '[' || json.Unmarshal(line, &list) != nil {
		list = []json.RawMessage{line}
	}
	for _, raw := range list {
		w.noteResponse(raw)
	}
	return n, err
}

// noteResponse counts a response to the client.
func (w connectionWriter) noteResponse(raw json.RawMessage) {
	m := parseResponse(raw)
	if m.Method != "" || len(m.ID) == 0 {
		return
	}
	if v := m.Result.ProtocolVersion; v != "" {
		w.batches = v < "2025-06-18"
	}
	if w.unanswered--; w.unanswered <= 0 {
		w.idle.Set()
	}
}

// Close implements io.Closer.
func (w connectionWriter) Close() error {
	w.connection.close.Do(func() { close(w.closed) })
	return w.out.Close()
}

// maxLine is the size limit of a message over stdio, in bytes.
const maxLine = 16 << 20

// StatelessVersion is the first protocol version without sessions.
const StatelessVersion = "2026-07-28"

// ErrorResponse returns an error response to a request; id is nil if it cannot be read.
func ErrorResponse(id any, e *jsonrpc.Error) map[string]any {
	if raw, ok := id.(json.RawMessage); ok && len(raw) == 0 {
		id = nil
	}
	return map[string]any{"jsonrpc": "2.0", "id": id, "error": e}
}

// InvalidRequest returns an error for a message that is not a valid request.
func InvalidRequest(format string, args ...any) *jsonrpc.Error {
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf(format, args...)}
}

func lineTooLong() *jsonrpc.Error {
	return InvalidRequest("a message may have at most %d bytes", maxLine)
}

// DecodeError returns the mistake in an invalid message, and the message's id, nil if unreadable.
func DecodeError(raw []byte) (id json.RawMessage, mistake *jsonrpc.Error) {
	var m map[string]json.RawMessage
	err := json.Unmarshal(raw, &m)
	var syntax *json.SyntaxError
	switch {
	case len(strings.TrimSpace(string(raw))) == 0:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the message is empty"}
	case errors.As(err, &syntax):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: fmt.Sprintf("the message is not valid JSON: error at byte %d", syntax.Offset)}
	case err != nil || m == nil:
		return nil, InvalidRequest("a JSON-RPC 2.0 message must be an object")
	}
	first := func(name string) byte { // of the value, n where it is missing or null
		if len(m[name]) == 0 {
			return 'n'
		}
		return m[name][0]
	}
	hasID := first("id") == '"' || first("id") == '-' || first("id") >= '0' && first("id") <= '9'
	if hasID {
		id = m["id"]
	}
	switch {
	case string(m["jsonrpc"]) != `"2.0"`:
		return id, InvalidRequest(`jsonrpc must be "2.0"`)
	case len(m["method"]) > 0 && first("method") != '"':
		return id, InvalidRequest("method must be a string")
	case first("id") != 'n' && !hasID:
		return id, InvalidRequest("id must be a string or a number")
	case first("error") != 'n' && first("error") != '{':
		return id, InvalidRequest("error must be an object")
	case first("method") == 'n' && !hasID:
		return id, InvalidRequest("the message has neither a method nor the id of a request")
	}
	return id, InvalidRequest("this is not a JSON-RPC 2.0 message")
}
