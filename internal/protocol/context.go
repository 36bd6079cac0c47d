package protocol

import (
	"context"

	"comet/internal/telemetry"
)

// Connection is what a dialect has to know of the line that a message comes or goes on, where
// what is said has to be signed.
type Connection struct {
	// Remote says that the other end is on another machine, and that nothing but signatures
	// says who it is.
	Remote bool
	// Verified says that the signature of the message was looked at when the line began.
	Verified bool
}

type connectionKey struct{}

// WithConnection returns a context for what is said on a line.
func WithConnection(ctx context.Context, l Connection) context.Context {
	return context.WithValue(ctx, connectionKey{}, l)
}

// ConnectionOf returns the line that a context is for, the zero Line where nothing is said.
func ConnectionOf(ctx context.Context) Connection {
	l, _ := ctx.Value(connectionKey{}).(Connection)
	return l
}

type traceKey struct{}

// WithTrace returns a context for messages that came with a W3C traceparent, the values of
// its header. One that is not valid, and none of several, is ignored (Trace Context §3.2).
func WithTrace(ctx context.Context, traceparents []string) context.Context {
	if len(traceparents) != 1 || !telemetry.IsTraceparent(traceparents[0]) {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, traceparents[0])
}

// TraceOf returns the traceparent that a message came with, "" for none.
func TraceOf(ctx context.Context) string {
	text, _ := ctx.Value(traceKey{}).(string)
	return text
}
