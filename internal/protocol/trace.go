package protocol

import (
	"context"

	"comet/internal/telemetry"
)

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
