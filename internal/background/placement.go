package background

import "context"

type placementKey struct{}

// WithPlacement returns a context that reports when an operation is placed, that is, when its position
// among other transactions is fixed. The first write transaction with the context calls placed. ordered
// is true if all transactions that start later take effect after it, false if it has only begun before
// them. A transaction that runs again gets a new position, without another call. A nil placed hides
// the function of parent from transactions that only prepare the operation.
func WithPlacement(parent context.Context, placed func(ordered bool)) context.Context {
	return context.WithValue(parent, placementKey{}, placed)
}

// Placed calls the function of WithPlacement, if ctx has one. The store calls it.
func Placed(ctx context.Context, ordered bool) {
	if placed, _ := ctx.Value(placementKey{}).(func(bool)); placed != nil {
		placed(ordered)
	}
}
