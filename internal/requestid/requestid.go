// Package requestid carries the id of a request through its context. It is a
// leaf so that the log handler, the audit log and the HTTP APIs can agree on
// it without importing one another.
package requestid

import "context"

type key struct{}

// With returns a context that carries the id.
func With(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, key{}, id)
}

// From returns the id that ctx carries, "" for none.
func From(ctx context.Context) string {
	id, _ := ctx.Value(key{}).(string)
	return id
}
