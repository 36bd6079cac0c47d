package bus

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// writeTimeout bounds how long a publisher waits for a server that reads nothing.
	writeTimeout = 2 * time.Second
	// A line that is cut without a word is noticed after two pings without an answer.
	pingInterval = 5 * time.Second
	maxPings     = 2
	// drainTimeout is more than any Stop has; its context ends the drain earlier.
	drainTimeout = time.Hour
)

// connect returns a connection that lives until Stop, whatever becomes of the servers.
func (b *Bus) connect() (*nats.Conn, error) {
	all := []nats.Option{
		nats.Name(b.opts.Name),
		nats.Timeout(b.opts.ConnectTimeout),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.CustomReconnectDelay(reconnectDelay),
		nats.IgnoreAuthErrorAbort(), // credentials can be put right while we run
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

// reconnectDelay is the wait before the servers are tried again, from 50 ms to 2 s. A
// part of it is chance, so that not all replicas come at once.
func reconnectDelay(attempts int) time.Duration {
	d := min(2*time.Second, 25*time.Millisecond<<min(attempts, 10))
	return d/2 + rand.N(d/2)
}

// disconnected logs the first of the failures since NATS was last there. err is nil
// where it was us who ended the connection.
func (b *Bus) disconnected(err error) {
	if b.away.Swap(true) || err == nil {
		return
	}
	b.log.Warn("NATS is away and tried again; what it would have told at once is found by looking now and then", "error", err)
}

// connected is called after each connection that was made. The first one, if it was
// made at once, is no gap: nobody had subscribed.
func (b *Bus) connected(conn *nats.Conn) {
	if !b.away.Swap(false) {
		return
	}
	b.log.Info("NATS is back", "server", conn.ConnectedUrlRedacted())
	b.gaps.raise(Gap{Reason: Reconnected})
}

// failed hears of what went wrong without a caller to tell it to.
func (b *Bus) failed(sub *nats.Subscription, err error) {
	switch {
	case errors.Is(err, nats.ErrSlowConsumer):
		b.mu.Lock()
		slow := b.subs[sub]
		b.mu.Unlock()
		if slow != nil {
			slow.lookForDropped(false)
		}
	case errors.Is(err, nats.ErrConnectionClosed): // we are being stopped
	default:
		b.log.Warn("NATS reports an error", "error", err)
	}
}
