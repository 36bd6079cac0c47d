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
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
	"comet/store"
)

const (
	// maxBody is how much of a response is read to reuse its connection; a longer one closes it.
	maxBody = 64 << 10
	// maxRetryAfter is the longest delay that a receiver may ask for.
	maxRetryAfter = 24 * time.Hour
	// maxLocation limits how much of a redirect's target a message repeats.
	maxLocation = 200
)

type attemptResult struct {
	attempt   models.DeliveryAttempt // without its number
	succeeded bool                   // the status was 2xx
	gone      bool                   // the status was 410
	// retryAfter is the wait that the receiver asked for, at most a day; 0 for none.
	retryAfter time.Duration
}

func (o *attemptResult) read(resp *http.Response, now time.Time) {
	defer resp.Body.Close()
	code := resp.StatusCode
	o.attempt.Status = code
	o.succeeded = code >= 200 && code < 300
	o.gone = code == http.StatusGone
	if !o.succeeded {
		o.attempt.Error = statusError(resp)
		o.retryAfter = retryAfter(resp.Header.Get("Retry-After"), now)
	}
	o.attempt.ResponseExcerpt = excerpt(resp)
}

// statusError returns the message for a status that is not 2xx.
func statusError(resp *http.Response) string {
	status := strconv.Itoa(resp.StatusCode)
	if text := http.StatusText(resp.StatusCode); text != "" {
		status += " " + text
	}
	if to := resp.Header.Get("Location"); to != "" && resp.StatusCode/100 == 3 {
		return fmt.Sprintf("redirects are not followed: %d to %s", resp.StatusCode, input.ClipTo(printable(to), maxLocation))
	}
	return "the server answered " + status
}

// retryAfter parses a number of seconds or a date (RFC 9110 §10.2.3); anything else counts as 0.
func retryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, uint64(maxRetryAfter/time.Second))) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxRetryAfter)
}

// excerpt returns the beginning of the body, and reads the rest if that keeps the connection.
func excerpt(resp *http.Response) string {
	if resp.ContentLength == 0 { // also after 101, where the body is the connection itself
		return ""
	}
	size := int64(store.MaxResponseExcerpt)
	if resp.ContentLength > 0 {
		size = min(size, resp.ContentLength)
	}
	begin := make([]byte, size)
	n, err := io.ReadFull(resp.Body, begin)
	if err == nil {
		_, _ = io.CopyN(io.Discard, resp.Body, maxBody-size) // usually to its end
	}
	return excerptText(begin[:n])
}

// excerptText turns the beginning of a body into UTF-8 without control characters.
func excerptText(begin []byte) string {
	if len(begin) == store.MaxResponseExcerpt {
		begin, _ = input.SplitRune(begin)
	}
	text := printable(string(begin))
	for len(text) > store.MaxResponseExcerpt { // a replacement character is longer than the replaced byte
		_, last := utf8.DecodeLastRuneInString(text)
		text = text[:len(text)-last]
	}
	return text
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || !unicode.IsControl(r) {
			return r // utf8.RuneError for a byte that is no character
		}
		if r == '\r' {
			return -1
		}
		return utf8.RuneError
	}, text)
}

// maxCause limits how much of a foreign error a message repeats.
const maxCause = 200

// failure returns the message for an attempt without a response; ctx is the caller's.
func failure(ctx context.Context, err error, timeout time.Duration) string {
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
		return "there was no answer within " + input.Duration(timeout)
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
		return fmt.Sprintf("%s cannot be resolved", input.Clip(err.Name))
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
