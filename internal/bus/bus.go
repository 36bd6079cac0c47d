// Package bus carries notifications between replicas and messages to agents. SQL is the source of
// truth; a message on the bus only wakes a reader or carries what can be sent again. The bus may
// lose messages and be rebuilt empty; its users read SQL when it reports a gap. It is core NATS
// without JetStream, on a server inside the process or at a URL; no other package knows which.
package bus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/nats-io/nats.go"

	"comet/internal/errs"
	"comet/internal/lifecycle"
)

// Bus publishes and subscribes. It is a lifecycle.Service and a prometheus.Collector, and safe
// for concurrent use.
type Bus struct {
	opts Options
	log  *slog.Logger
	id   string // identifies this bus to the other replicas

	counts counters
	gaps   *gaps

	starting sync.Mutex // held by Start and Stop
	server   *server    // nil unless an embedded server runs
	conn     atomic.Pointer[nats.Conn]
	closed   chan struct{} // closed with the connection
	stopped  bool

	away atomic.Bool // whether the loss of NATS was logged

	mu   sync.Mutex
	subs map[*nats.Subscription]*Subscription
}

// New returns a bus that is not started. Its errors name the invalid option, including a file
// that cannot be read; they contain no secret.
func New(opts *Options) (*Bus, error) {
	o := opts.orDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	b := &Bus{opts: o, log: o.Logger, id: uuid.NewString(), closed: make(chan struct{}), subs: map[*nats.Subscription]*Subscription{}}
	b.gaps = newGaps(b.settle)
	return b, nil
}

// Start implements lifecycle.Service. An embedded server is running when Start returns, or Start
// returns why not, such as an address in use. With a URL it returns no error for a server that is
// unreachable, refuses the credentials or shows a wrong certificate: that is logged, reported by
// Check, and retried until Stop. It then returns after the first attempt, which takes up to
// ConnectTimeout per server. A stopped bus cannot be started again.
func (b *Bus) Start(ctx context.Context) error {
	b.starting.Lock()
	defer b.starting.Unlock()
	switch {
	case b.stopped:
		return errors.New("the bus was stopped")
	case b.conn.Load() != nil:
		return nil
	}
	if b.opts.URL == "" {
		s, err := startServer(ctx, &b.opts)
		if err != nil {
			return err
		}
		b.server = s
	}
	conn, err := b.connect()
	if err != nil {
		return errors.Join(err, b.stopServer(ctx))
	}
	b.conn.Store(conn)
	return b.gaps.Start(ctx)
}

// Stop implements lifecycle.Service. It sends what was published, handles what has arrived, and
// accepts nothing new. It returns ctx's error if that took too long; the rest is lost, and a
// handler may still run.
func (b *Bus) Stop(ctx context.Context) error {
	b.starting.Lock()
	defer b.starting.Unlock()
	b.stopped = true
	err := b.drain(ctx)
	return errors.Join(err, b.gaps.Stop(ctx), b.stopServer(ctx))
}

func (b *Bus) drain(ctx context.Context) error {
	conn := b.conn.Load()
	if conn == nil {
		return nil
	}
	// It fails only if there is nothing to drain: the connection is lost or closed.
	_ = conn.Drain()
	select {
	case <-b.closed:
		return nil
	case <-ctx.Done():
		conn.Close()
		<-b.closed
		return ctx.Err()
	}
}

func (b *Bus) stopServer(ctx context.Context) error {
	if b.server == nil {
		return nil
	}
	err := b.server.stop(ctx)
	if err == nil {
		b.server = nil
	}
	return err
}

// Addr returns the host:port at which the embedded server listens, "" if it does not listen or
// run.
func (b *Bus) Addr() string {
	b.starting.Lock()
	defer b.starting.Unlock()
	if b.server == nil || b.opts.Listen == "" {
		return ""
	}
	return b.server.nats.Addr().String()
}

// Check asks the server for a response and returns errs.Unavailable if none comes before ctx
// ends, or within two seconds.
func (b *Bus) Check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	return b.Flush(ctx)
}

const checkTimeout = 2 * time.Second

// running returns the connection, or errs.Unavailable before Start.
func (b *Bus) running() (*nats.Conn, error) {
	if conn := b.conn.Load(); conn != nil {
		return conn, nil
	}
	return nil, errs.New(errs.Unavailable, "the bus does not run")
}

var _ lifecycle.Service = (*Bus)(nil)
