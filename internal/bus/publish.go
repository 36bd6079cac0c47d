package bus

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"

	"comet/internal/errs"
	"comet/internal/words"
)

// requestTimeout is how long a request waits whose context has no deadline.
const requestTimeout = 10 * time.Second

// Publish hands a message to the connection and does not wait for the server; data may
// be used again. nil does not say that anybody got it. While NATS is away the message
// is kept, up to PublishBuffer, and sent when it is back. An error is counted, and may
// be ignored by whoever has committed already. It is errs.BodyTooLarge over the largest
// message, errs.InvalidRequest for a subject that is none, and errs.Unavailable where
// the buffer is full or the bus does not run. A server that does not read keeps the
// caller for two seconds at most.
func (b *Bus) Publish(subject string, data []byte) error {
	err := b.publish(subject, data)
	if err != nil {
		b.counts.failures.Add(1)
		return err
	}
	b.counts.published.Add(1)
	return nil
}

// MaxPayload is the largest message in bytes that can be published now: that of the
// options, or the server's own if it is smaller.
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
			// What others had published and was not written yet is lost with it.
			_ = conn.ForceReconnect()
		}
		return b.explain(err)
	}
	return nil
}

// Request publishes data and returns the first answer. It ends with ctx, or after 10 s
// where ctx has no deadline: errs.Timeout. It is errs.Unavailable where nobody
// subscribes to the subject or the connection is lost meanwhile; the request may have
// been heard then. The errors of Publish come too. A cancelled ctx is ctx's error.
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

// Flush returns when the server has taken what was published and subscribed before. It
// returns errs.Unavailable at once where NATS is away, and where it does not answer
// before ctx ends or within 10 s.
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
		return errs.New(errs.InvalidRequest, "%s is no subject to publish to", words.Quote(subject))
	}
	if len(data) > b.opts.MaxPayload {
		return errs.New(errs.BodyTooLarge, "a message of %d bytes is over the bus's limit of %d", len(data), b.opts.MaxPayload)
	}
	return nil
}

// explain turns the client library's error into one of ours.
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

// isWriteError reports an error of the line itself, and not one of those with which the
// client library refuses a message.
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
