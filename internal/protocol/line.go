package protocol

import "context"

// Line is what a dialect has to know of the line that a message comes or goes on, where
// what is said has to be signed.
type Line struct {
	// Far says that the other end is on another machine, and that nothing but signatures
	// says who it is.
	Far bool
	// Vouched says that the signature of the message was looked at when the line began.
	Vouched bool
}

type lineKey struct{}

// OnLine returns a context for what is said on a line.
func OnLine(ctx context.Context, l Line) context.Context {
	return context.WithValue(ctx, lineKey{}, l)
}

// LineOf returns the line that a context is for, the zero Line where nothing is said.
func LineOf(ctx context.Context) Line {
	l, _ := ctx.Value(lineKey{}).(Line)
	return l
}
