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

// proxy is a network that can be cut: what goes through it is lost when it is, in the
// middle of a message perhaps.
type proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	conns   map[net.Conn]bool
	running sync.WaitGroup
}

// newProxy leads to an address until its test ends.
func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{listener: l, target: to, conns: map[net.Conn]bool{}}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		require.NoError(t, l.Close())
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
	for _, line := range []net.Conn{to, from} {
		_ = line.Close()
		p.mu.Lock()
		delete(p.conns, line)
		p.mu.Unlock()
	}
}

// cut ends every line, without a word.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for line := range p.conns {
		if c, ok := line.(*net.TCPConn); ok {
			_ = c.SetLinger(0)
		}
		_ = line.Close()
	}
}

// cutRepeatedly cuts until stop is called.
func (p *proxy) cutRepeatedly(most time.Duration) (stop func()) {
	end := make(chan struct{})
	p.running.Go(func() {
		for {
			select {
			case <-time.After(rand.N(most)):
				p.cut()
			case <-end:
				return
			}
		}
	})
	return sync.OnceFunc(func() { close(end) })
}
