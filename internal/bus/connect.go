package bus

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// writeTimeout limits how long a publisher waits for a server that does not read.
	writeTimeout = 2 * time.Second
	// A silent connection is given up after two unanswered pings.
	pingInterval = 5 * time.Second
	maxPings     = 2
	// drainTimeout exceeds that of any Stop, whose context ends the drain earlier.
	drainTimeout = time.Hour
)

// connect returns a connection that lives until Stop, even if all servers fail.
func (b *Bus) connect() (*nats.Conn, error) {
	all := []nats.Option{
		nats.Name(b.opts.Name),
		nats.Timeout(b.opts.ConnectTimeout),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.CustomReconnectDelay(reconnectDelay),
		nats.IgnoreAuthErrorAbort(), // credentials can be corrected while comet runs
		nats.ReconnectBufSize(b.opts.PublishBuffer),
		nats.FlusherTimeout(writeTimeout), nats.ReconnectOnFlusherError(),
		nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(maxPings),
		nats.DrainTimeout(drainTimeout),
		nats.ConnectHandler(func(conn *nats.Conn) { b.connected(conn) }),
		nats.ReconnectHandler(func(conn *nats.Conn) {
			b.counts.reconnects.Add(1)
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
	if err := b.listenToOthers(conn); err != nil {
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
	if b.away.Swap(true) || err == nil {
		return
	}
	b.log.Warn("NATS is away and tried again; what it would have told at once is found by looking now and then", "error", err)
}

// connected is called after each new connection. The first one, if made at once, is no gap: there
// were no subscriptions yet.
func (b *Bus) connected(conn *nats.Conn) {
	if !b.away.Swap(false) {
		return
	}
	b.log.Info("NATS is back", "server", conn.ConnectedUrlRedacted())
	b.gaps.raise(Gap{Reason: Reconnected})
}

// failed receives errors that have no caller.
func (b *Bus) failed(sub *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		b.mu.Lock()
		slow := b.subs[sub]
		b.mu.Unlock()
		if slow != nil {
			slow.lookForDropped(false)
		}
	case errors.Is(err, nats.ErrConnectionClosed): // stopping
	default:
		b.log.Warn("NATS reports an error", "error", err)
	}
}
