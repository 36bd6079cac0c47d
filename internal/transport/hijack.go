package transport

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
)

// The buffers of a line. What is longer goes past them; most lines say nothing most of
// the time, and there are many of them.
const (
	readBuffer  = 512
	writeBuffer = 512
)

// smallBufferWriter is a response whose connection, once it is taken over, has small buffers.
type smallBufferWriter struct{ http.ResponseWriter }

// Hijack implements http.Hijacker.
func (w smallBufferWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, large, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	come := large.Reader.Buffered()
	small := bufio.NewReaderSize(conn, max(readBuffer, come))
	if come > 0 { // what came with the request; whoever takes over looks for it in the buffer
		text, _ := large.Reader.Peek(come)
		small.Reset(io.MultiReader(bytes.NewReader(text), conn))
		_, _ = small.Peek(come)
	}
	return conn, bufio.NewReadWriter(small, bufio.NewWriterSize(conn, writeBuffer)), nil
}
