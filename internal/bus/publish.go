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

// flushTimeout limits Flush.
const flushTimeout = 10 * time.Second

// Publish passes a message to the connection and does not wait for the server; data may be reused.
// Without an error the message may still be lost. While NATS is unreachable, messages are buffered up
// to PublishBuffer. Errors are counted, and callers that have committed may ignore them:
// errs.BodyTooLarge above the size limit, errs.InvalidRequest for an invalid subject, errs.Unavailable
// if the buffer is full or the bus does not run. A server that does not read blocks the caller for at
// most two seconds.
func (b *Bus) Publish(subject string, data []byte) error {
	return b.PublishWithHeader(subject, nil, data)
}

// PublishWithHeader is Publish for a message with headers, nil for none.
func (b *Bus) PublishWithHeader(subject string, header map[string][]string, data []byte) error {
	err := b.publish(subject, header, data)
	if err != nil {
		b.metrics.failures.Inc()
		return err
	}
	b.metrics.published.Inc()
	return nil
}

// MaxPayload returns the largest message in bytes that can be published now: that of the options,
// or the server's own if it is smaller.
func (b *Bus) MaxPayload() int {
	if conn := b.conn.Load(); conn != nil {
		if limit := conn.MaxPayload(); limit > 0 && limit < int64(b.opts.MaxPayload) {
			return int(limit)
		}
	}
	return b.opts.MaxPayload
}

func (b *Bus) publish(subject string, header map[string][]string, data []byte) error {
	conn, err := b.running()
	if err != nil {
		return err
	}
	if err := b.checkMessage(subject, data); err != nil {
		return err
	}
	if err := conn.PublishMsg(&nats.Msg{Subject: subject, Header: header, Data: data}); err != nil {
		if isWriteError(err) {
			// Unwritten messages of other publishers are lost with the connection.
			_ = conn.ForceReconnect()
		}
		return translate(conn, err)
	}
	return nil
}

// Flush returns when the server has processed everything published and subscribed before. It
// returns errs.Unavailable at once if NATS is unreachable, and if there is no response before ctx
// ends or within 10 s.
func (b *Bus) Flush(ctx context.Context) error {
	conn, err := b.running()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, flushTimeout)
	defer cancel()
	if !conn.IsConnected() {
		err = conn.LastError()
	} else if err = conn.FlushWithContext(ctx); err == nil {
		return nil
	}
	if errors.Is(err, context.Canceled) {
		return err
	}
	return errs.Wrap(errs.Unavailable, err, "NATS does not respond")
}

func (b *Bus) checkMessage(subject string, data []byte) error {
	if strings.ContainsAny(subject, "*>") || !isSubject(subject) {
		return errs.New(errs.InvalidRequest, "%s is not a subject to publish to", input.Quote(subject))
	}
	if len(data) > b.opts.MaxPayload {
		return errs.New(errs.BodyTooLarge, "the message has %d bytes; the limit of the bus is %d", len(data), b.opts.MaxPayload)
	}
	return nil
}
