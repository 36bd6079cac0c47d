package upstream

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
)

const (
	queuedWrites = 64 // messages that the program has not read
	queuedReads  = 16
	maxBatch     = 1000 // messages in one line, which 2025-03-26 allows
)

// stdio is the connection to a program, one message per line. The SDK's connection ends at the first
// invalid line and blocks all callers while the program does not read. This one drops and counts invalid
// lines, a response over the limit fails only its own call, and a write waits until its context ends.
type stdio struct {
	*inbound
	in  *input.LineReader
	out io.WriteCloser

	incoming chan jsonrpc.Message
	outgoing chan []byte
	mu       sync.Mutex
	direct   map[string]chan directReply // of running direct calls, by id
	closed   chan struct{}               // closed by Close
	close    sync.Once
	ended    chan struct{} // closed at the end of the output
	running  sync.WaitGroup
}

var _ mcp.Connection = (*stdio)(nil)

// newStdio starts to read and write. Close and the end of in end it.
func newStdio(in io.Reader, out io.WriteCloser, rules *inbound) *stdio {
	c := &stdio{
		inbound: rules, in: input.NewLineReader(bufio.NewReaderSize(in, 64<<10), rules.limit), out: out,
		direct: map[string]chan directReply{}, incoming: make(chan jsonrpc.Message, queuedReads), outgoing: make(chan []byte, queuedWrites),
		closed: make(chan struct{}), ended: make(chan struct{}),
	}
	c.running.Go(c.readAll)
	c.running.Go(c.writeAll)
	return c
}

// Connect implements mcp.Transport. It returns the one connection.
func (c *stdio) Connect(context.Context) (mcp.Connection, error) { return c, nil }

// SessionID implements mcp.Connection.
func (c *stdio) SessionID() string { return "" }

// readAll reads to the end, also after Close, so that a program that still writes can exit.
func (c *stdio) readAll() {
	defer close(c.ended)
	for {
		line, over, err := c.in.Next()
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

func (c *stdio) tooLarge(over *input.LongText) {
	id, ok := responseIDOf(over)
	if !ok {
		c.invalid.add(nil)
		return
	}
	if problem := tooLarge(c.limit); !c.reply(id.Raw(), directReply{err: problem}) {
		c.deliver(&jsonrpc.Response{ID: id, Error: problem})
	}
}

func (c *stdio) decodeLine(line []byte) {
	if id, r, ok := readReply(line); ok {
		if r.result = bytes.Clone(r.result); c.reply(id, r) {
			return
		}
	}
	if msg, err := jsonrpc.DecodeMessage(line); err == nil {
		c.receive(msg)
		return
	}
	var batch []json.RawMessage
	if line[0] != '[' || json.Unmarshal(line, &batch) != nil || len(batch) > maxBatch {
		c.invalid.add(line)
		return
	}
	for _, raw := range batch {
		if msg, err := jsonrpc.DecodeMessage(raw); err == nil {
			c.receive(msg)
		} else {
			c.invalid.add(nil)
		}
	}
}

func (c *stdio) receive(msg jsonrpc.Message) {
	if r, ok := msg.(*jsonrpc.Response); ok && c.reply(r.ID.Raw(), directReply{r.Result, r.Error}) {
		return
	}
	if !c.hook(msg, "") {
		c.deliver(markRemoteError(msg))
	}
}

func (c *stdio) deliver(msg jsonrpc.Message) {
	select {
	case c.incoming <- msg:
	case <-c.closed:
	}
}

// Read implements mcp.Connection. It returns the pending messages before the end.
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
		return &jsonrpc.Error{Code: codeRejected, Message: err.Error()} // fails this message only
	}
	return c.send(ctx, append(data, '\n'))
}

// send queues a line for the program.
func (c *stdio) send(ctx context.Context, line []byte) error {
	select {
	case c.outgoing <- line:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return io.ErrClosedPipe
	}
}

// writeAll ends with Close, which also interrupts a blocked write. After a failed write it drops
// messages, and the output of the program is still read.
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

// Close implements mcp.Connection: it closes the program's input. It may be called twice.
func (c *stdio) Close() error {
	c.close.Do(func() {
		close(c.closed)
		_ = c.out.Close()
	})
	return nil
}

// directPrefix is the prefix of the ids of direct calls. The SDK's ids are numbers.
const directPrefix = "comet-"

type directReply struct {
	result []byte
	err    error
}

// readReply reads a response to a direct call; ok is false for others. The result is a part of msg.
func readReply(msg []byte) (id string, r directReply, ok bool) {
	version := false
	ok = input.EachMember(msg, func(name string, value []byte) bool {
		switch name {
		case "jsonrpc":
			version = string(value) == `"2.0"`
		case "id":
			id, _ = input.JSONString(value)
		case "result":
			r.result = value
		case "error":
			problem := &jsonrpc.Error{}
			r.err = problem
			return value[0] == '{' && json.Unmarshal(value, problem) == nil
		case "method":
			return false
		}
		return true
	})
	return id, r, ok && version && strings.HasPrefix(id, directPrefix) && (r.result == nil) != (r.err == nil)
}

// request sends the line of a direct call and returns its result.
func (c *stdio) request(ctx context.Context, id string, line []byte) ([]byte, error) {
	reply := make(chan directReply, 1)
	c.mu.Lock()
	c.direct[id] = reply
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		delete(c.direct, id)
		c.mu.Unlock()
	}()
	if err := c.send(ctx, line); err != nil {
		return nil, err
	}
	select {
	case r := <-reply:
		return r.result, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.closed:
	case <-c.ended:
	}
	select {
	case r := <-reply: // the last message
		return r.result, r.err
	default:
		return nil, errors.New("the connection has ended")
	}
}

// reply passes a response to the direct call with the id, and reports whether there is one.
func (c *stdio) reply(id any, r directReply) bool {
	text, _ := id.(string)
	c.mu.Lock()
	defer c.mu.Unlock()
	waiting := c.direct[text]
	if waiting == nil {
		return false
	}
	delete(c.direct, text) // a second response is not for it
	waiting <- r
	return true
}
