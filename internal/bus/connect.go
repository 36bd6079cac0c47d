package bus

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// connectTimeout limits one connection attempt to one server.
	connectTimeout = 2 * time.Second
	// writeTimeout limits how long a publisher waits for a server that does not read.
	writeTimeout = 2 * time.Second
	// A connection is lost after two pings without a response.
	pingInterval = 5 * time.Second
	maxPings     = 2
	// drainTimeout exceeds the time of any Stop, whose context ends the drain earlier.
	drainTimeout = time.Hour
	// settleTimeout limits how long the report of a gap waits for the subscriptions.
	settleTimeout = 5 * time.Second
)

// connect returns a connection that lives until Stop, even if all servers fail.
func (b *Bus) connect() (*nats.Conn, error) {
	all := []nats.Option{
		nats.Name("comet"),
		nats.Timeout(connectTimeout),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.CustomReconnectDelay(reconnectDelay),
		nats.IgnoreAuthErrorAbort(), // credentials can be corrected while comet runs
		nats.ReconnectBufSize(b.opts.PublishBuffer),
		nats.FlusherTimeout(writeTimeout), nats.ReconnectOnFlusherError(),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(maxPings),
		nats.DrainTimeout(drainTimeout),
		nats.ConnectHandler(func(conn *nats.Conn) { b.connected(conn) }),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			b.metrics.reconnects.Inc()
			b.connected(conn)
		}),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) { b.disconnected(err) }),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { b.disconnected(err) }),
		nats.ErrorHandler(func(_ *nats.Conn, sub *nats.Subscription, err error) { b.failed(sub, err) }),
		nats.ClosedHandler(func(*nats.Conn) { close(b.closed) }),
	}
	if b.server != nil {
		all = append(all, nats.InProcessServer(b.server.nats), nats.Token(b.server.secret))
	} else {
		identity, err := b.opts.identity()
		if err != nil {
			return nil, err
		}
		all = append(all, identity...)
	}
	conn, err := nats.Connect(b.opts.URL, all...)
	if err != nil {
		return nil, err
	}
	if err := b.subscribeToReconnects(conn); err != nil {
		conn.Close()
		<-b.closed
		return nil, err
	}
	return conn, nil
}

// reconnectDelay returns the wait before the next connection attempt, from 50 ms to 2 s, with
// jitter so that replicas do not reconnect at the same time.
func reconnectDelay(attempts int) time.Duration {
	d := min(2*time.Second, 25*time.Millisecond<<min(attempts, 10))
	return d/2 + rand.N(d/2)
}

// disconnected logs the first failure since NATS was last reachable. err is nil if comet closed
// the connection.
func (b *Bus) disconnected(err error) {
	if b.unreachable.Swap(true) || err == nil {
		return
	}
	b.log.Warn("NATS is unreachable; reconnecting, meanwhile changes are found by polling", "error", err)
}

// connected is called after each new connection. It reports a gap, except for a first connection that
// is made at once, before there are subscriptions.
func (b *Bus) connected(conn *nats.Conn) {
	if !b.unreachable.Swap(false) {
		return
	}
	b.log.Info("NATS is reachable again", "server", conn.ConnectedUrlRedacted())
	b.gaps.reconnected.Store(true)
	b.gaps.report()
}

// failed handles errors outside of a call.
func (b *Bus) failed(sub *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		b.mu.Lock()
		slow := b.subs[sub]
		b.mu.Unlock()
		if slow != nil {
			slow.reportDropped(false)
		}
	case errors.Is(err, nats.ErrConnectionClosed): // stopping
	default:
		b.log.Warn("NATS reports an error", "error", err)
	}
}

// settle returns when the server has accepted the subscriptions of a new connection, so that no
// message is lost between a read of SQL and the next message. It also notifies the other replicas,
// because messages that this one published while it was disconnected may be lost. If one of both fails,
// the connection is lost again, and the next one is a gap, too.
func (b *Bus) settle(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_ = b.Flush(ctx)
	_ = b.Publish(string(WakeEverything), []byte(b.id))
}

// subscribeToReconnects subscribes to the reconnections of other replicas.
func (b *Bus) subscribeToReconnects(conn *nats.Conn) error {
	_, err := conn.Subscribe(string(WakeEverything), func(m *nats.Msg) {
		if string(m.Data) != b.id {
			b.gaps.report()
		}
	})
	return err
}
