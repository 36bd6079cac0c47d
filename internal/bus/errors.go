package bus

import (
	"context"
	"errors"

	"github.com/nats-io/nats.go"

	"comet/internal/errs"
)

// translate converts errors of the client library to errs.
func translate(conn *nats.Conn, err error) error {
	switch {
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, context.DeadlineExceeded):
		return errs.Wrap(errs.Timeout, err, "there was no response in time")
	case errors.Is(err, nats.ErrNoResponders):
		return errs.Wrap(errs.Unavailable, err, "the subject has no subscriber")
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
