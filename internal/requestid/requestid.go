// Package requestid carries the id of a request through its context, with further ids that its log
// records have. It is a leaf so that the log handler, the audit log and the HTTP APIs can agree on
// it without importing one another.
package requestid

import (
	"context"
	"log/slog"
	"slices"
	"sync"
)

type key struct{}

// request is a request, or one message of a connection.
type request struct {
	id    string
	mu    sync.Mutex
	attrs []slog.Attr
}

// With returns a context that carries the id, "" for none, and no further ids.
func With(ctx context.Context, id string) context.Context {
	r := &request{id: id}
	if id != "" {
		r.attrs = []slog.Attr{slog.String("request_id", id)}
	}
	return context.WithValue(ctx, key{}, r)
}

// From returns the id that ctx carries, "" for none.
func From(ctx context.Context) string {
	if r, ok := ctx.Value(key{}).(*request); ok {
		return r.id
	}
	return ""
}

// Add adds further ids to the request of ctx, such as those of its trace and of its message. The
// earlier contexts of the request have them too. Empty ones are ignored.
func Add(ctx context.Context, ids ...slog.Attr) {
	if r, ok := ctx.Value(key{}).(*request); ok {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, id := range ids {
			if id.Value.String() != "" && !slices.ContainsFunc(r.attrs, id.Equal) {
				r.attrs = append(r.attrs, id)
			}
		}
	}
}

// Attrs returns the ids of the request of ctx as they are logged.
func Attrs(ctx context.Context) []slog.Attr {
	r, ok := ctx.Value(key{}).(*request)
	if !ok {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.attrs)
}
