package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/errs"
	"comet/internal/input"
)

// The reasons of a failed request, the member "reason" of errs.UpstreamFailed.
const (
	// ReasonDown means that the upstream has no session, or that it ended during the request.
	ReasonDown = "down"
	// ReasonTimeout means that no response arrived in time.
	ReasonTimeout = "timeout"
	// ReasonBusy means that the upstream has reached MaxCalls or another limit.
	ReasonBusy = "busy"
	// ReasonTooLarge means that a message exceeds Options.MaxMessage, in either direction.
	ReasonTooLarge = "too_large"
	// ReasonProtocol means that the upstream returned an error or an invalid response.
	ReasonProtocol = "protocol"
	// ReasonScope means that the access token lacks a scope.
	ReasonScope = "insufficient_scope"
)

// failure returns the error of a request to an upstream: one sentence without secrets.
func failure(reason, server, format string, args ...any) *errs.Error {
	return newError(errs.UpstreamFailed, server, format, args...).With("reason", reason).With("server", server)
}

// newError returns an error whose sentence begins with the id of the upstream.
func newError(code errs.Code, server, format string, args ...any) *errs.Error {
	return errs.New(code, "upstream %q %s", server, fmt.Sprintf(format, args...))
}

// MayHaveActed is a member of the error of a request that may have been sent and whose response was lost.
const MayHaveActed = "may_have_acted"

// markLost adds MayHaveActed to the failure of a request, unless the upstream has returned an error or was not reached.
func markLost(failed, cause error) error {
	e, ok := errors.AsType[*errs.Error](failed)
	dial, isDial := errors.AsType[*net.OpError](cause)
	if ok && e.Meta["reason"] != nil && e.Meta["rpc_code"] == nil && e.Meta["reason"] != ReasonScope && !(isDial && dial.Op == "dial") {
		return e.With(MayHaveActed, true)
	}
	return failed
}

// cancelled returns a context.Canceled for a request that the caller has cancelled.
func cancelled(server, format string, args ...any) error {
	return errs.Wrap(errs.UpstreamFailed, context.Canceled, "upstream %q %s", server, fmt.Sprintf(format, args...))
}

// codeTooLarge is the code of a response over the limit. codeRejected is the SDK's code of a
// message that could not be sent; its constant is internal.
const (
	codeTooLarge = -32097
	codeRejected = -32005
)

// maxErrorData limits the data of an error that is passed on, in bytes.
const maxErrorData = 16 << 10

func tooLarge(limit int) *jsonrpc.Error {
	return &jsonrpc.Error{Code: codeTooLarge, Message: fmt.Sprintf("the response is larger than %d bytes", limit)}
}

func errorResponse(id jsonrpc.ID, problem *jsonrpc.Error) []byte {
	data, _ := jsonrpc.EncodeMessage(&jsonrpc.Response{ID: id, Error: problem}) // cannot fail
	return data
}

// connectionError returns the URL and the innermost cause of a failed HTTP request, other errors unchanged.
func connectionError(err error) error {
	if inURL, ok := errors.AsType[*url.Error](err); ok {
		for inner := inURL.Err; inner != nil; inner = errors.Unwrap(inner) {
			err = inner
		}
		return fmt.Errorf("cannot connect to %s: %w", inURL.URL, err)
	}
	return err
}

// errPanic replaces a panic of the code that reads a message of an upstream.
var errPanic = errors.New("unreadable message")

// guard runs code that reads messages of an upstream: a panic of the SDK must not end the program.
func guard[T any](fn func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%v)", errPanic, p)
		}
	}()
	return fn()
}

// remoteError is an error that an upstream returned. The SDK takes JSON-RPC errors with some codes for
// its own errors of a closing connection, but not this type; errors.As finds the JSON-RPC error.
type remoteError struct{ rpc *jsonrpc.Error }

// Error implements error.
func (f *remoteError) Error() string { return f.rpc.Message }

// As sets target to the JSON-RPC error.
func (f *remoteError) As(target any) bool {
	p, ok := target.(**jsonrpc.Error)
	if ok {
		*p = f.rpc
	}
	return ok
}

func markRemoteError(msg jsonrpc.Message) jsonrpc.Message {
	if answer, ok := msg.(*jsonrpc.Response); ok {
		if rpc, ok := answer.Error.(*jsonrpc.Error); ok { //nolint:errorlint // it has just been decoded
			answer.Error = &remoteError{rpc}
		}
	}
	return msg
}

// maxSample limits the part of an invalid message that is shown, in bytes.
const maxSample = 120

// invalidMessages counts the invalid messages of an upstream and keeps the first one's beginning.
type invalidMessages struct {
	mu     sync.Mutex
	n      int64
	sample string
}

func (c *invalidMessages) add(message []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.sample == "" {
		c.sample = string(message[:min(len(message), maxSample)])
	}
}

// warning returns a sentence about the invalid messages, "" if there are none.
func (c *invalidMessages) warning(s *secrets) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return ""
	}
	text := fmt.Sprintf("%d lines or events were dropped that are not messages of the protocol", c.n)
	if c.n == 1 {
		text = "a line or an event was dropped that is not a message of the protocol"
	}
	if c.sample != "" {
		text += "; the first one began with " + input.Quote(s.mask(c.sample))
	}
	return text
}
