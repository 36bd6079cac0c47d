package protocol

import "context"

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
