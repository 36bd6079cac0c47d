package upstream

import (
	"errors"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/input"
)

// Kind is the kind of an error.
type Kind string

// The kinds of errors.
const (
	// KindUnknownServer means that no upstream has the id.
	KindUnknownServer Kind = "unknown_server"
	// KindDown means that the upstream is disabled, starting or failed, or that its session ended
	// during the call.
	KindDown Kind = "down"
	// KindTimeout means that no response arrived in time.
	KindTimeout Kind = "timeout"
	// KindTooLarge means that a message exceeds Options.MaxMessage, in either direction.
	KindTooLarge Kind = "too_large"
	// KindProtocol means that the upstream returned an error or an invalid response.
	KindProtocol Kind = "protocol"
	// KindUnknownTool means that the upstream has no tool of that name.
	KindUnknownTool Kind = "unknown_tool"
	// KindCancelled means that the caller cancelled the call.
	KindCancelled Kind = "cancelled"
	// KindBusy means that the upstream has reached MaxCalls or another limit.
	KindBusy Kind = "busy"
	// KindInvalid means that a request or a definition is invalid.
	KindInvalid Kind = "invalid"
	// KindConflict means that an upstream of another source has the id.
	KindConflict Kind = "conflict"
)

// Error is the error of every method of Manager. It never contains the value of a secret.
type Error struct {
	Kind Kind
	// Server is the id of the upstream.
	Server string
	// Detail is one sentence that names the upstream.
	Detail string
	// RPC is the error that the upstream returned, nil if there is none. Its data comes from the
	// upstream.
	RPC *jsonrpc.Error

	cause error
}

// Error implements error.
func (e *Error) Error() string { return e.Detail }

// Unwrap returns the cause, nil if there is none.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of err, "" for nil and for other errors.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return ""
}

func newError(kind Kind, server, format string, args ...any) *Error {
	return &Error{Kind: kind, Server: server, Detail: fmt.Sprintf("upstream %q ", server) + fmt.Sprintf(format, args...)}
}

// withCause sets the cause for errors.Is. The sentence does not contain it.
func (e *Error) withCause(cause error) *Error {
	e.cause = cause
	return e
}

// codeTooLarge is the code of a response over the limit. codeRejected is the SDK's code of a
// message that could not be sent; its constant is internal.
const (
	codeTooLarge = -32097
	codeRejected = -32005
)

func tooLarge(limit int) *jsonrpc.Error {
	return &jsonrpc.Error{Code: codeTooLarge, Message: fmt.Sprintf("the response is larger than %d bytes", limit)}
}

// errPanic replaces a panic of the code that reads a message of an upstream.
var errPanic = errors.New("unreadable message")

// guard runs code that reads messages of an upstream. The SDK trusts its server in places, and a
// panic there must not end the program.
func guard[T any](fn func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%v)", errPanic, p)
		}
	}()
	return fn()
}

// remoteError is an error that an upstream returned. The SDK treats some codes of any origin as its
// own errors of a closing connection. This type prevents that; errors.As still finds the JSON-RPC
// error.
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

// markRemoteError wraps the error of a response in a remoteError.
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

// invalidMessages counts the invalid messages of an upstream and keeps the beginning of the first
// one.
type invalidMessages struct {
	mu     sync.Mutex
	n      int64
	sample string
}

func (c *invalidMessages) add(sample string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n++; c.sample == "" {
		c.sample = sample
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
