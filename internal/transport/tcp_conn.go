package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/time/rate"

	"comet/internal/background"
)

// maxFirstBytes is the size limit of the first line, in bytes.
const maxFirstBytes = 64 << 10

// tcpConn is a messageConn over TCP, one message per line.
type tcpConn struct {
	net.Conn
	reader *bufio.Reader
	// maxBytes is the size limit of a line. A longer line is truncated and refused as too long.
	maxBytes int
	// rateLimit limits the lines read in a second. A faster sender is read later.
	rateLimit *rate.Limiter
	// idleTimeout is how long the agent may send nothing.
	idleTimeout time.Duration
	writeMu     sync.Mutex // held while a message is written
	broken      bool       // a message could not be written completely
	// onPing is called instead of a ping: TCP keep-alive detects a dead peer.
	onPing func()
}

func (c *tcpConn) read(ctx context.Context) ([]byte, error) {
	for {
		if err := c.rateLimit.Wait(ctx); err != nil {
			return nil, err
		}
		line, err := c.readLine(ctx)
		if err != nil || len(line) > 0 {
			return line, err
		}
	}
}

// readLine reads the next line without its line break. The last line may have none.
func (c *tcpConn) readLine(ctx context.Context) ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(c.idleTimeout)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var line []byte
	part, err := c.reader.ReadSlice('\n')
	for len(line)+len(part) <= c.maxBytes+2 {
		line = append(line, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			line, part = bytes.TrimRight(line, "\r\n"), nil
			break
		}
		part, err = c.reader.ReadSlice('\n')
	}
	if part != nil { // the line is too long; its rest is discarded
		line = append(line, part[:min(len(part), c.maxBytes+2-len(line))]...)
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = c.reader.ReadSlice('\n')
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	return line, err
}

func (c *tcpConn) write(ctx context.Context, msg []byte) error {
	c.writeMu.Lock()
	defer c.writeMu.Unlock()
	if c.broken {
		return net.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetWriteDeadline(deadline); err != nil {
			return err
		}
	}
	_, err := c.Write(append(bytes.Clone(msg), '\n'))
	if err != nil { // a partial line may be written, so nothing may follow it
		c.broken = true
		c.cut()
	}
	return err
}

func (c *tcpConn) ping(context.Context) error {
	c.onPing()
	return nil
}

func (c *tcpConn) close(websocket.StatusCode, string) { c.cut() }

func (c *tcpConn) cut() { _ = c.Close() }

// origin describes where a connection comes from. remote is set for another machine, and trusted for a
// process of this user or of root. name is the user at the other end of a Unix socket.
type origin struct {
	remote, trusted bool
	prefix          netip.Prefix
	name            string
}

// maxPerRemotePrefix limits the unauthenticated connections from one subscriber on another machine.
const maxPerRemotePrefix = 8

// anonymousLimiter limits the connections whose agent is not known yet. They cost an attacker
// nothing, so each remote address gets only a few, and silent ones do not keep this machine out.
type anonymousLimiter struct {
	limit  int
	remote *background.Limiter[netip.Prefix]
	mu     sync.Mutex
	local  []net.Conn // the oldest first
}

// acquire counts a connection until release is called, which is nil if there are too many from other
// machines. A connection from this machine ends the oldest one instead.
func (l *anonymousLimiter) acquire(from origin, conn net.Conn) (release func()) {
	if from.remote {
		release, _ = l.remote.Acquire(from.prefix)
		return release
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.local) >= l.limit {
		_ = l.local[0].Close()
		l.local = l.local[1:]
	}
	l.local = append(l.local, conn)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.local = slices.DeleteFunc(l.local, func(c net.Conn) bool { return c == conn })
	}
}
