package upstream

import (
	"errors"
	"fmt"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"comet/internal/words"
)

// Kind says what went wrong with an upstream.
type Kind string

// The kinds of errors.
const (
	// KindUnknownServer is an id that no upstream has.
	KindUnknownServer Kind = "unknown_server"
	// KindDown is an upstream that is disabled, being started, failed, or lost in the
	// middle of a call.
	KindDown Kind = "down"
	// KindTimeout is an answer that did not come in time.
	KindTimeout Kind = "timeout"
	// KindTooLarge is a message over Options.MaxMessage, in either direction.
	KindTooLarge Kind = "too_large"
	// KindProtocol is an error the upstream answers with, or an answer that is none of
	// the protocol.
	KindProtocol Kind = "protocol"
	// KindUnknownTool is a name that is not among the upstream's tools.
	KindUnknownTool Kind = "unknown_tool"
	// KindCancelled is a call whose caller has gone.
	KindCancelled Kind = "cancelled"
	// KindBusy is an upstream with MaxCalls calls running.
	KindBusy Kind = "busy"
	// KindInvalid is a request or a definition of an upstream that breaks a rule.
	KindInvalid Kind = "invalid"
	// KindConflict is an id that is taken by an upstream from another source.
	KindConflict Kind = "conflict"
)

// Error is what every method of the manager returns. It never holds the value of a
// secret.
type Error struct {
	Kind Kind
	// Server is the upstream's id.
	Server string
	// Detail is one sentence for a person that names the upstream.
	Detail string
	// RPC is the error the upstream answered with, nil where there is none. Its data
	// is the upstream's own.
	RPC *jsonrpc.Error

	cause error
}

// Error implements error.
func (e *Error) Error() string { return e.Detail }

// Unwrap returns the cause, nil where there is none.
func (e *Error) Unwrap() error { return e.cause }

// KindOf returns the kind of err: "" for nil and for errors of others.
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

// withCause keeps a cause for errors.Is; the sentence does not show it.
func (e *Error) withCause(cause error) *Error {
	e.cause = cause
	return e
}

// What the transports say of a message that is over the limit, and of one that could not
// be sent. The second is the SDK's own, whose name is internal.
const (
	codeTooLarge = -32097
	codeRejected = -32005
)

func tooLarge(limit int) *jsonrpc.Error {
	return &jsonrpc.Error{Code: codeTooLarge, Message: fmt.Sprintf("the answer is larger than %d bytes", limit)}
}

// errPanic is what an upstream's message made of the code that reads it.
var errPanic = errors.New("a message that cannot be read")

// guard runs what reads an upstream's messages. The SDK trusts them in places, and a
// panic in there must not end the program.
func guard[T any](fn func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w (%v)", errPanic, p)
		}
	}()
	return fn()
}

// remoteError is an error that an upstream answered with. The SDK takes some codes, whoever
// they come from, for its own words of a connection that is being closed; as a foreign
// error they are what they are, and errors.As still finds them.
type remoteError struct{ rpc *jsonrpc.Error }

// Error implements error.
func (f *remoteError) Error() string { return f.rpc.Message }

// As has errors.As find the error in it.
func (f *remoteError) As(target any) bool {
	p, ok := target.(**jsonrpc.Error)
	if ok {
		*p = f.rpc
	}
	return ok
}

// markRemoteError marks the error of an answer.
func markRemoteError(msg jsonrpc.Message) jsonrpc.Message {
	if answer, ok := msg.(*jsonrpc.Response); ok {
		if rpc, ok := answer.Error.(*jsonrpc.Error); ok { //nolint:errorlint // it has just been decoded
			answer.Error = &remoteError{rpc}
		}
	}
	return msg
}

// maxSample is how much of something that is no message is shown, in bytes.
const maxSample = 120

// invalidMessages counts what an upstream sent that is no message of the protocol, and keeps the
// beginning of the first.
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

// warning is a sentence for a person, "" where there was nothing.
func (c *invalidMessages) warning(s *secrets) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return ""
	}
	text := fmt.Sprintf("%d lines or events that are no messages of the protocol were dropped", c.n)
	if c.n == 1 {
		text = "a line or an event that is no message of the protocol was dropped"
	}
	if c.sample != "" {
		text += ", the first began with " + words.Quote(s.mask(c.sample))
	}
	return text
}
