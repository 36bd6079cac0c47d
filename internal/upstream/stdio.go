package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const (
	queuedWrites = 64 // messages that wait for a program to read
	queuedReads  = 16
	maxBatch     = 1000 // messages in one line, as 2025-03-26 has them
)

// stdio is the connection to a program: a message a line. The SDK's own ends at the
// first line that is no message, and blocks every caller when the program does not read.
// Here such lines are dropped and counted, an answer over the limit fails its own call
// only, and nobody waits for a write longer than its context.
type stdio struct {
	in      *lineReader
	out     io.WriteCloser
	limit   int
	invalid *invalidMessages
	hook    messageHook

	incoming chan jsonrpc.Message
	outgoing chan []byte
	closed   chan struct{} // by Close
	close    sync.Once
	ended    chan struct{} // the program's output has
	running  sync.WaitGroup
}

var _ mcp.Connection = (*stdio)(nil)

// newStdio begins to read and write; Close and the end of in end it.
func newStdio(in io.Reader, out io.WriteCloser, limit int, garbage *invalidMessages, aside messageHook) *stdio {
	c := &stdio{
		in: newLineReader(in, limit), out: out, limit: limit, invalid: garbage, hook: aside,
		incoming: make(chan jsonrpc.Message, queuedReads), outgoing: make(chan []byte, queuedWrites),
		closed: make(chan struct{}), ended: make(chan struct{}),
	}
	c.running.Go(c.readAll)
	c.running.Go(c.writeAll)
	return c
}

// Connect implements mcp.Transport for the one session that the connection is for.
func (c *stdio) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID implements mcp.Connection.
func (c *stdio) SessionID() string { return "" }

// readAll reads to the end also after Close, so that a program that still writes can end
// by itself.
func (c *stdio) readAll() {
	defer close(c.ended)
	for {
		line, over, err := c.in.next()
		switch {
		case over != nil:
			c.tooLarge(over)
		case err == nil && len(bytes.TrimSpace(line)) > 0:
			c.decodeLine(line)
		}
		if err != nil {
			return
		}
	}
}

func (c *stdio) tooLarge(over *oversized) {
	id, ok := over.responseID()
	if !ok {
		c.invalid.add("")
		return
	}
	c.deliver(&jsonrpc.Response{ID: id, Error: tooLarge(c.limit)})
}

func (c *stdio) decodeLine(line []byte) {
	if msg, err := jsonrpc.DecodeMessage(line); err == nil {
		c.receive(msg)
		return
	}
	var batch []json.RawMessage
	if line[0] != '[' || json.Unmarshal(line, &batch) != nil || len(batch) > maxBatch {
		c.invalid.add(string(line[:min(len(line), maxSample)]))
		return
	}
	for _, raw := range batch {
		if msg, err := jsonrpc.DecodeMessage(raw); err == nil {
			c.receive(msg)
		} else {
			c.invalid.add("")
		}
	}
}

func (c *stdio) receive(msg jsonrpc.Message) {
	if !c.hook(msg) {
		c.deliver(markRemoteError(msg))
	}
}

func (c *stdio) deliver(msg jsonrpc.Message) {
	select {
	case c.incoming <- msg:
	case <-c.closed:
	}
}

// Read implements mcp.Connection. What was read before the end comes before it.
func (c *stdio) Read(ctx context.Context) (jsonrpc.Message, error) {
	select {
	case msg := <-c.incoming:
		return msg, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
		return nil, io.EOF
	case <-c.ended:
	}
	select {
	case msg := <-c.incoming:
		return msg, nil
	default:
		return nil, io.EOF
	}
}

// Write implements mcp.Connection.
func (c *stdio) Write(ctx context.Context, msg jsonrpc.Message) error {
	data, err := jsonrpc.EncodeMessage(msg)
	if err != nil {
		return &jsonrpc.Error{Code: codeRejected, Message: err.Error()} // of this message only
	}
	select {
	case c.outgoing <- append(data, '\n'):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
}

// writeAll ends with Close, which also interrupts a write to a program that does not
// read. A failed write is no end: what the program has written before is still read.
func (c *stdio) writeAll() {
	failed := false
	for {
		select {
		case data := <-c.outgoing:
			if !failed {
				_, err := c.out.Write(data)
				failed = err != nil
			}
		case <-c.closed:
			return
		}
	}
}

// Close implements mcp.Connection: the program's input ends. It may be repeated.
func (c *stdio) Close() error {
	c.close.Do(func() {
		close(c.closed)
		_ = c.out.Close()
	})
	return nil
}
