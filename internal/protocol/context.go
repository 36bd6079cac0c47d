package protocol

import (
	"context"

	"comet/internal/telemetry"
)

// Connection is what a protocol must know about the connection of a message in order to check and
// create signatures.
type Connection struct {
	// Remote says that the agent is on another machine, so that only signatures identify it.
	Remote bool
	// Verified says that the signature of the message was verified during the handshake.
	Verified bool
}

type connectionKey struct{}

// WithConnection returns a context for the messages of a connection.
func WithConnection(ctx context.Context, l Connection) context.Context {
	return context.WithValue(ctx, connectionKey{}, l)
}

// ConnectionOf returns the connection of a context, the zero Connection if there is none.
func ConnectionOf(ctx context.Context) Connection {
	l, _ := ctx.Value(connectionKey{}).(Connection)
	return l
}

type traceKey struct{}

// WithTrace returns a context for messages received with a W3C traceparent header. An invalid value
// or more than one value is ignored (Trace Context §3.2).
func WithTrace(ctx context.Context, traceparents []string) context.Context {
	if len(traceparents) != 1 || !telemetry.IsTraceparent(traceparents[0]) {
		return ctx
	}
	return context.WithValue(ctx, traceKey{}, traceparents[0])
}

// TraceOf returns the traceparent of a context, "" for none.
func TraceOf(ctx context.Context) string {
	text, _ := ctx.Value(traceKey{}).(string)
	return text
}
