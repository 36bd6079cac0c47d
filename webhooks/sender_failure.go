package webhooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"

	"comet/internal/errs"
	"comet/internal/input"
)

// maxCause limits how much of a foreign error a message repeats.
const maxCause = 200

// failure returns the message for an attempt without a response. ctx is the caller's.
func (s *sender) failure(ctx context.Context, err error) string {
	var (
		lookUp      *net.DNSError
		certificate *tls.CertificateVerificationError
		record      tls.RecordHeaderError
	)
	switch {
	case errs.Is(err, errs.AddressRefused):
		return errs.From(err).Detail
	case ctx.Err() != nil:
		return "the attempt was given up before there was an answer"
	case errors.As(err, &lookUp):
		return failedLookUp(lookUp)
	case timedOut(err):
		return "there was no answer within " + input.Duration(s.timeout)
	case errors.As(err, &certificate):
		return "the certificate of the server cannot be trusted: " + cause(certificate.Err)
	case errors.Is(err, http.ErrSchemeMismatch), errors.As(err, &record):
		return "the server does not speak TLS, which https asks for"
	}
	return failedConnection(err)
}

func timedOut(err error) bool {
	var timeout net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || errors.As(err, &timeout) && timeout.Timeout()
}

func failedLookUp(err *net.DNSError) string {
	switch {
	case err.IsNotFound:
		return fmt.Sprintf("no address is known for %s", input.Clip(err.Name))
	case err.IsTimeout:
		return fmt.Sprintf("the look-up of %s took too long", input.Clip(err.Name))
	}
	return fmt.Sprintf("the look-up of %s failed: %s", input.Clip(err.Name), cause(errors.New(err.Err)))
}

func failedConnection(err error) string {
	var op *net.OpError
	to := "the server"
	if errors.As(err, &op) && op.Op == "dial" && op.Addr != nil {
		to = op.Addr.String()
	}
	switch {
	case op != nil && op.Op == "remote error": // an alert, as crypto/tls reports it
		return "the server refused the TLS handshake: " + cause(op.Err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Sprintf("the connection to %s was refused", to)
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return fmt.Sprintf("there is no way to %s", to)
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the server reset the connection before it answered"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "the server closed the connection before it answered"
	}
	for inner := err; inner != nil; inner = errors.Unwrap(inner) {
		err = inner // outer layers are our own
	}
	return "the request failed: " + cause(err)
}

// cause returns a library error as the end of a sentence.
func cause(err error) string {
	return input.ClipTo(printable(strings.TrimSuffix(err.Error(), ".")), maxCause)
}
