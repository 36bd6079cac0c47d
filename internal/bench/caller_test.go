package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"
)

// caller is a client with one kept-alive connection. It writes prepared requests and parses as
// little of a response as possible: net/http's client would cost as much as the server.
type caller struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
	body []byte
}

// newCaller returns a client of the server at addr. It connects on first use, because the server
// closes idle connections.
func newCaller(tb testing.TB, addr string) *caller {
	tb.Helper()
	c := &caller{addr: addr}
	tb.Cleanup(func() {
		if c.conn != nil {
			_ = c.conn.Close()
		}
	})
	return c
}

func (c *caller) connect() (err error) {
	if c.conn == nil {
		c.conn, err = (&net.Dialer{}).DialContext(detached(), "tcp", c.addr)
		c.in = bufio.NewReaderSize(c.conn, 64<<10)
	}
	return err
}

// callerTimeout limits the wait for a response.
const callerTimeout = 90 * time.Second

// exchange sends a request and returns the status and the body of the response, which is valid
// until the next call. After an error the next call connects again.
func (c *caller) exchange(request []byte) (status int, body []byte, err error) {
	if err := c.connect(); err != nil {
		return 0, nil, err
	}
	defer func() {
		if err != nil {
			_ = c.conn.Close()
			c.conn = nil
		}
	}()
	if err := c.conn.SetDeadline(time.Now().Add(callerTimeout)); err != nil {
		return 0, nil, err
	}
	if _, err := c.conn.Write(request); err != nil {
		return 0, nil, err
	}
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if len(line) < len("HTTP/1.1 200\r\n") {
		return 0, nil, fmt.Errorf("not a status line: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, err
	}
	size, err := c.readHeader()
	if err != nil {
		return 0, nil, err
	}
	if cap(c.body) < size {
		c.body = make([]byte, size)
	}
	c.body = c.body[:size]
	for n := 0; n < size; {
		m, err := c.in.Read(c.body[n:])
		if err != nil {
			return 0, nil, err
		}
		n += m
	}
	return status, c.body, nil
}

// readHeader reads up to the body and returns the body's length.
func (c *caller) readHeader() (int, error) {
	size := -1
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		if len(line) <= 2 {
			if size < 0 {
				return 0, fmt.Errorf("the response has no Content-Length")
			}
			return size, nil
		}
		if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if size, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
}

// expect is exchange for a response known in advance.
func (c *caller) expect(request []byte, status int, body []byte) error {
	got, text, err := c.exchange(request)
	if err != nil {
		return err
	}
	if got != status || !bytes.Equal(text, body) {
		return fmt.Errorf("%d %s\ninstead of %d %s\nto %s", got, text, status, body, request)
	}
	return nil
}

// get returns the bytes of a GET request.
func get(path, token string) []byte {
	return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: comet\r\nAuthorization: Bearer %s\r\nAccept: application/json\r\n\r\n", path, token)
}

// post returns the bytes of a POST request.
func post(path, token string, body []byte) []byte {
	return fmt.Appendf(nil, "POST %s HTTP/1.1\r\nHost: comet\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		path, token, len(body), body)
}
