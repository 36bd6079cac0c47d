// Package bus is the motion between replicas and towards agents. SQL is the truth;
// a message on the bus only wakes somebody or carries what can be sent again, so the
// bus may lose messages and be rebuilt empty, and its users look at SQL when it says
// that they may have missed one. It is core NATS without JetStream, on a server inside
// the process or on one that is given by its URL; nothing else knows which.
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

// Bus publishes and subscribes. It is a lifecycle.Service and a prometheus.Collector,
// and safe for concurrent use.
type Bus struct {
	opts Options
	log  *slog.Logger
	id   string // names this bus to the others

	counts counters
	gaps   *gaps

	starting sync.Mutex // held by Start and Stop
	server   *server    // nil unless it is embedded and runs
	conn     atomic.Pointer[nats.Conn]
	closed   chan struct{} // closed when the connection is
	stopped  bool

	away atomic.Bool // whether the log has heard that NATS is away

	mu   sync.Mutex
	subs map[*nats.Subscription]*Subscription
}

// New returns a bus that does not run yet. Its errors name the option that cannot be
// used, a file that cannot be read among them; they hold no secret.
func New(opts *Options) (*Bus, error) {
	o := opts.orDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	b := &Bus{opts: o, log: o.Logger, id: uuid.NewString(), closed: make(chan struct{}), subs: map[*nats.Subscription]*Subscription{}}
	b.gaps = newGaps(b.settle)
	return b, nil
}

// Start implements lifecycle.Service. An embedded server runs when it returns, or it
// returns why it does not, such as an address that is taken. With a URL it returns no
// error for a server that is away, refuses the credentials or shows a wrong certificate:
// that is logged, told by Check, and tried again until Stop. It then returns after the
// first attempt, which takes up to ConnectTimeout a server. A bus that was stopped
// cannot be started again.
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

// Stop implements lifecycle.Service. What was published before is sent, what has
// arrived is handled, and nothing new is taken. It returns ctx's error where that took
// too long; then what is left is lost, and a handler may still run.
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
	// Its only errors are that there is nothing to drain: the connection is away or closed.
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

// Addr is where the embedded server listens, as host:port with the port it was given;
// "" where it does not listen or does not run.
func (b *Bus) Addr() string {
	b.starting.Lock()
	defer b.starting.Unlock()
	if b.server == nil || b.opts.Listen == "" {
		return ""
	}
	return b.server.nats.Addr().String()
}

// Check asks the server for an answer and returns errs.Unavailable where none comes
// before ctx ends, or within two seconds.
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
