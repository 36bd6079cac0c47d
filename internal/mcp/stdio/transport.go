// Package stdio connects MCP clients over standard input and output, one message per line: with an
// MCP server of this process (NewTransport), or with one over HTTP (Relay). Every request gets a
// response.
package stdio

import (
	"bytes"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/input"
)

// Check checks a line of a client, which has one message or, if batches is true, a batch. It
// returns the number of requests whose responses the end of the input waits for, and the reply to
// an invalid line, nil for a valid one.
type Check func(line []byte, batches bool) (requests int, reply any)

// connection is the connection of one client. The SDK's connection ends at the first invalid line,
// and at the end of the input drops pending requests. Here an invalid line is answered, and the end
// waits for the pending responses.
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

// drain waits for the pending responses.
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

// connectionWriter is the writer of the SDK.
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
	var m struct {
		ID     json.RawMessage `json:"id"`
		Method string          `json:"method"`
		Result struct {
			ProtocolVersion string `json:"protocolVersion"`
		} `json:"result"`
	}
	if _ = json.Unmarshal(raw, &m); m.Method != "" || len(m.ID) == 0 {
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
