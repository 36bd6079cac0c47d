package app_test

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// proxy is a network that can be cut: data in transit is lost, possibly in the middle of a message.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	conns   map[net.Conn]bool
	running sync.WaitGroup
}

// newProxy forwards to an address until the test ends.
func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: listener, target: to, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		p.cut()
		p.running.Wait()
	})
	return p
}

func (p *proxy) url() string { return "http://" + p.address() }

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.DialTimeout("tcp", p.target, time.Second)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns[in], p.conns[out] = true, true
		p.mu.Unlock()
		p.running.Go(func() { p.pipe(in, out) })
		p.running.Go(func() { p.pipe(out, in) })
	}
}

func (p *proxy) pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	for _, conn := range []net.Conn{to, from} {
		_ = conn.Close()
		p.mu.Lock()
		delete(p.conns, conn)
		p.mu.Unlock()
	}
}

// cut resets every connection.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		if c, ok := conn.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
		_ = conn.Close()
	}
}

// cutRepeatedly calls cut until stop is called.
func (p *proxy) cutRepeatedly(maxPause time.Duration) (stop func()) {
	end := make(chan struct{})
	p.running.Go(func() {
		for {
			select {
			case <-time.After(rand.N(maxPause)):
				p.cut()
			case <-end:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(end) })
}
