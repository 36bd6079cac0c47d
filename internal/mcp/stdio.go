package mcp

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// streamConn is the connection of one client, such as stdio, one message per line. The SDK's
// connection ends at the first invalid line, and at the end of the input drops pending requests.
// Here an invalid line is answered, and the end waits for the pending responses.
type streamConn struct {
	lines  *bufio.Scanner
	out    io.WriteCloser
	closed chan struct{} // closed by Close
	close  sync.Once

	pending    []byte        // rest of the line that the SDK reads
	writing    sync.Mutex    // one line to the client at a time
	unanswered int           // requests without a response; guarded by writing
	idle       chan struct{} // has an element when unanswered may be 0
	batches    bool          // the protocol version has batches
	schemas    requestSchemas
}

// newStreamTransport returns the transport of a connection.
func newStreamTransport(in io.Reader, out io.WriteCloser) mcp.Transport {
	s := &streamConn{out: out, closed: make(chan struct{}), idle: make(chan struct{}, 1), batches: true, schemas: newRequestSchemas()}
	s.lines = boundedLines(in, maxLine, func() {
		s.writing.Lock()
		defer s.writing.Unlock()
		s.reject(errorResponse(nil, invalidRequest("%s", lineTooLongText())))
	})
	return &mcp.IOTransport{Reader: io.NopCloser(s), Writer: streamWriter{s}}
}

// Read implements io.Reader. It returns valid lines, and io.EOF after the pending responses.
func (s *streamConn) Read(p []byte) (int, error) {
	for len(s.pending) == 0 {
		if !s.lines.Scan() {
			s.drain()
			return 0, io.EOF // a disconnected client is not a failure
		}
		if line := bytes.TrimSpace(s.lines.Bytes()); len(line) > 0 && s.accept(line) {
			s.pending = append(bytes.Clone(line), '\n')
		}
	}
	n := copy(p, s.pending)
	s.pending = s.pending[n:]
	return n, nil
}

// accept reports whether a line has valid messages. It responds to an invalid line.
func (s *streamConn) accept(line []byte) bool {
	s.writing.Lock()
	defer s.writing.Unlock()
	list := []json.RawMessage{line}
	if line[0] == '[' && json.Unmarshal(line, &list) == nil {
		if !s.batches {
			s.reject(errorResponse(nil, invalidRequest("this protocol version has no batches: send one message per line")))
			return false
		}
		if answers := s.schemas.checkBatch(line); answers != nil {
			s.reject(answers)
			return false
		}
	}
	asked := 0
	for _, raw := range list {
		msg, err := jsonrpc.DecodeMessage(raw)
		if err != nil {
			id, problem := decodeError(raw)
			s.reject(errorResponse(rawID(id), problem))
			return false
		}
		req, ok := msg.(*jsonrpc.Request)
		if !ok || !req.IsCall() {
			continue
		}
		if problem := s.schemas.check(req); problem != nil {
			s.reject(errorResponse(req.ID.Raw(), problem))
			return false
		}
		if req.Method != "subscriptions/listen" { // which lasts until the end
			asked++
		}
	}
	s.unanswered += asked
	return len(list) > 0
}

// reject responds to a line. The caller holds s.writing.
func (s *streamConn) reject(answer any) {
	text, _ := json.Marshal(answer) // cannot fail: it was decoded from JSON
	_, _ = s.out.Write(append(text, '\n'))
}

// drain waits for the pending responses.
func (s *streamConn) drain() {
	late := time.NewTimer(drainTimeout)
	defer late.Stop()
	for {
		s.writing.Lock()
		answered := s.unanswered <= 0
		s.writing.Unlock()
		if answered {
			return
		}
		select {
		case <-s.idle:
		case <-late.C:
			return
		case <-s.closed:
			return
		}
	}
}

// streamWriter is the writer of the SDK.
type streamWriter struct{ *streamConn }

// Write implements io.Writer. line is one message or a batch.
func (w streamWriter) Write(line []byte) (int, error) {
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
func (w streamWriter) noteResponse(raw json.RawMessage) {
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
		select {
		case w.idle <- struct{}{}:
		default:
		}
	}
}

// Close implements io.Closer.
func (w streamWriter) Close() error {
	w.streamConn.close.Do(func() { close(w.closed) })
	return w.out.Close()
}

// maxLine is the size limit of a message over stdio, in bytes.
const maxLine = 16 << 20

// boundedLines splits the input into lines of at most most bytes. It skips a longer line and calls
// tooLong.
func boundedLines(in io.Reader, most int, tooLong func()) *bufio.Scanner {
	lines, skipping := bufio.NewScanner(in), false
	lines.Buffer(nil, most+2) // a line of the limit, and the proof of a longer one
	lines.Split(func(data []byte, atEOF bool) (advance int, line []byte, err error) {
		end := bytes.IndexByte(data, '\n')
		switch {
		case skipping && end >= 0:
			skipping = false
			return end + 1, nil, nil
		case skipping:
			return len(data), nil, nil
		case end > most, end < 0 && len(data) > most:
			tooLong()
			skipping = end < 0
			if skipping {
				return len(data), nil, nil
			}
			return end + 1, nil, nil
		case end >= 0:
			return end + 1, data[:end], nil
		case atEOF && len(data) > 0:
			return len(data), data, nil
		}
		return 0, nil, nil
	})
	return lines
}

// lineTooLongText returns the error for a line over the limit.
func lineTooLongText() string { return fmt.Sprintf("a message may have at most %d bytes", maxLine) }
