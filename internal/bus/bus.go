// Package bus carries notifications between replicas and messages to agents. SQL is the source of
// truth: a message on the bus wakes a reader, or can be sent again. The bus may lose messages, also all
// of them; it reports such a gap to its users, which then read SQL. It is core NATS without JetStream, on
// a server inside the process or at a URL; other packages do not depend on the difference.
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
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"comet/internal/background"
	"comet/internal/errs"
)

// Bus publishes and subscribes. It is a background.Service and a prometheus.Collector, and safe
// for concurrent use.
type Bus struct {
	opts Options
	log  *slog.Logger
	id   string // identifies this bus to the other replicas

	metrics metrics
	gaps    *gaps

	starting sync.Mutex // held by Start and Stop
	server   *server    // nil unless an embedded server runs
	conn     atomic.Pointer[nats.Conn]
	closed   chan struct{} // closed with the connection
	stopped  bool

	unreachable atomic.Bool // the loss of NATS was logged

	mu   sync.Mutex
	subs map[*nats.Subscription]*Subscription
}

// New returns a bus that is not started. Its errors name the invalid option, including a file
// that cannot be read. They contain no secret.
func New(opts *Options) (*Bus, error) {
	o := opts.orDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	b := &Bus{opts: o, log: o.Logger, id: uuid.NewString(), closed: make(chan struct{}), subs: map[*nats.Subscription]*Subscription{}}
	b.metrics = newMetrics(b.isConnected)
	b.gaps = &gaps{settle: b.settle, added: background.NewSignal()}
	b.gaps.Loop = background.NewLoop(b.gaps.run)
	return b, nil
}

// Start implements background.Service. An embedded server is running when Start returns; an address
// in use, for example, is an error. With a URL, Start returns after the first attempt to connect, which
// takes up to two seconds per server. A server that is unreachable, refuses the credentials or
// shows an invalid certificate is no error: it is logged, reported by Check, and retried until Stop. A
// stopped bus cannot be started again.
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

// Stop implements background.Service. It sends the published messages, handles the received ones, and
// accepts no new ones. If ctx ends first, it returns the error of ctx: the remaining messages are lost,
// and a handler may still run.
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
	_ = conn.Drain() // fails only if the connection is lost or closed
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

// Addr returns the host:port at which the embedded server listens, "" if it does not listen or run.
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

// isConnected reports whether there is a connection to a server.
func (b *Bus) isConnected() bool {
	conn := b.conn.Load()
	return conn != nil && conn.IsConnected()
}

// OnGap calls fn after messages may have been lost, once new ones arrive again: after this replica
// or another one has reconnected, at the first message that was dropped because a handler was too
// slow, and when that handler has processed its backlog. It may be called at any time. The calls
// run one after the other on a goroutine of the bus; pending gaps are merged into one. stop
// prevents further calls, but does not end one in progress.
func (b *Bus) OnGap(fn func()) (stop func()) { return b.gaps.add(fn) }

// Describe implements prometheus.Collector.
func (b *Bus) Describe(to chan<- *prometheus.Desc) { prometheus.DescribeByCollect(b, to) }

// Collect implements prometheus.Collector.
func (b *Bus) Collect(to chan<- prometheus.Metric) { b.metrics.registry.Collect(to) }

var (
	_ background.Service   = (*Bus)(nil)
	_ prometheus.Collector = (*Bus)(nil)
)

// translate converts errors of the client library to errs.
func translate(conn *nats.Conn, err error) error {
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return errs.Wrap(errs.BodyTooLarge, err, "the message exceeds the NATS server's limit of %d bytes", conn.MaxPayload())
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return errs.Wrap(errs.Unavailable, err, "NATS is unreachable, and the buffer for messages is full")
	}
	return errs.Wrap(errs.Unavailable, err, "NATS is unreachable")
}

// isWriteError reports an error of the connection, as opposed to a message that the client library
// rejects.
func isWriteError(err error) bool {
	for _, rejection := range []error{
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrReconnectBufExceeded, nats.ErrMaxPayload, nats.ErrBadSubject,
	} {
		if errors.Is(err, rejection) {
			return false
		}
	}
	return true
}

// metrics are the metrics of a bus. The counters count since New.
type metrics struct {
	registry                                 *prometheus.Registry
	published, failures, reconnects, dropped prometheus.Counter
}

func newMetrics(isConnected func() bool) metrics {
	registry := prometheus.NewRegistry()
	create := promauto.With(registry)
	counter := func(name, help string) prometheus.Counter {
		return create.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	create.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "comet_bus_connected", Help: "1 while there is a connection to NATS, else 0.",
	}, func() float64 {
		if isConnected() {
			return 1
		}
		return 0
	})
	return metrics{
		registry:   registry,
		published:  counter("comet_bus_messages_published_total", "Messages handed to NATS."),
		failures:   counter("comet_bus_publish_failures_total", "Messages that could not be handed to NATS."),
		reconnects: counter("comet_bus_reconnects_total", "Connections to NATS that were lost and made again."),
		dropped:    counter("comet_bus_messages_dropped_total", "Messages dropped because their handler was too slow."),
	}
}
