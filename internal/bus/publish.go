package bus

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"comet/internal/errs"
	"comet/internal/input"
)

// requestTimeout limits a request whose context has no deadline.
const requestTimeout = 10 * time.Second

// Publish gives a message to the connection and does not wait for the server; data may be reused.
// A nil error does not mean that the message was received. While NATS is unreachable messages are
// buffered up to PublishBuffer. Errors are counted, and callers that have committed may ignore
// them: errs.BodyTooLarge above the largest message, errs.InvalidRequest for an invalid subject,
// errs.Unavailable if the buffer is full or the bus does not run. A server that does not read
// blocks the caller for at most two seconds.
func (b *Bus) Publish(subject string, data []byte) error {
	err := b.publish(subject, data)
	if err != nil {
		b.counts.failures.Add(1)
		return err
	}
	b.counts.published.Add(1)
	return nil
}

// MaxPayload returns the largest message in bytes that can be published now: that of the options,
// or the server's own if it is smaller.
func (b *Bus) MaxPayload() int {
	if conn := b.conn.Load(); conn != nil {
		if most := conn.MaxPayload(); most > 0 && most < int64(b.opts.MaxPayload) {
			return int(most)
		}
	}
	return b.opts.MaxPayload
}

func (b *Bus) publish(subject string, data []byte) error {
	conn, err := b.running()
	if err != nil {
		return err
	}
	if err := b.checkMessage(subject, data); err != nil {
		return err
	}
	if err := conn.Publish(subject, data); err != nil {
		if isWriteError(err) {
			// Unwritten messages of other publishers are lost with the connection.
			_ = conn.ForceReconnect()
		}
		return b.explain(err)
	}
	return nil
}

// Request publishes data and returns the first response. It ends with ctx, or after 10 s without
// a deadline: errs.Timeout. It is errs.Unavailable if there is no subscriber, or if the
// connection is lost meanwhile, in which case the request may have been received. Errors of
// Publish are possible, too. A cancelled ctx returns ctx's error.
func (b *Bus) Request(ctx context.Context, subject string, data []byte) (Message, error) {
	conn, err := b.running()
	if err != nil {
		return Message{}, err
	}
	if err := b.checkMessage(subject, data); err != nil {
		return Message{}, err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	m, err := conn.RequestWithContext(ctx, subject, data)
	if err != nil {
		return Message{}, b.explain(err)
	}
	return Message{Subject: m.Subject, Data: m.Data, bus: b}, nil
}

// Flush returns when the server has processed everything published and subscribed before. It
// returns errs.Unavailable at once if NATS is unreachable, and if there is no response before ctx
// ends or within 10 s.
func (b *Bus) Flush(ctx context.Context) error {
	conn, err := b.running()
	if err != nil {
		return err
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if !conn.IsConnected() {
		err = conn.LastError()
	} else if err = conn.FlushWithContext(ctx); err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return errs.Wrap(errs.Unavailable, err, "NATS does not answer")
}

func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, requestTimeout)
}

func (b *Bus) checkMessage(subject string, data []byte) error {
	if strings.ContainsAny(subject, "*>") || !isSubject(subject) {
		return errs.New(errs.InvalidRequest, "%s is no subject to publish to", input.Quote(subject))
	}
	if len(data) > b.opts.MaxPayload {
		return errs.New(errs.BodyTooLarge, "a message of %d bytes is over the bus's limit of %d", len(data), b.opts.MaxPayload)
	}
	return nil
}

// explain converts errors of the client library.
func (b *Bus) explain(err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return errs.Wrap(errs.Timeout, err, "nobody answered in time")
	case errors.Is(err, nats.ErrNoResponders):
		return errs.Wrap(errs.Unavailable, err, "nobody is there to answer")
	case errors.Is(err, nats.ErrMaxPayload):
		return errs.Wrap(errs.BodyTooLarge, err, "the message is over the NATS server's limit of %d bytes", b.conn.Load().MaxPayload())
	case errors.Is(err, nats.ErrReconnectBufExceeded):
		return errs.Wrap(errs.Unavailable, err, "NATS is away, and no more is kept for it")
	}
	return errs.Wrap(errs.Unavailable, err, "NATS is away")
}

// isWriteError reports an error of the connection, as opposed to a message that the client
// library refuses.
func isWriteError(err error) bool {
	for _, refusal := range []error{
		nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrReconnectBufExceeded, nats.ErrMaxPayload, nats.ErrBadSubject,
	} {
		if errors.Is(err, refusal) {
			return false
		}
	}
	return true
}
