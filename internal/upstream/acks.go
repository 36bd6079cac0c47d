package upstream

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// acks hears which resources an upstream has begun to watch. The zero value is ready.
type acks struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// expect returns a channel that is closed when the resource is watched.
func (a *acks) expect(uri string) (acknowledged <-chan struct{}, forget func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting == nil {
		a.waiting = map[string]chan struct{}{}
	}
	ch := make(chan struct{})
	a.waiting[uri] = ch
	return ch, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.waiting[uri] == ch {
			delete(a.waiting, uri)
		}
	}
}

// listen is middleware: the SDK has no handler for this.
func (a *acks) listen(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.SubscriptionsAcknowledgedParams); ok && p != nil {
			a.hear(p.Notifications.ResourceSubscriptions)
		}
		return next(ctx, method, req)
	}
}

func (a *acks) hear(uris []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uri := range uris {
		if ch, ok := a.waiting[uri]; ok {
			delete(a.waiting, uri)
			close(ch)
		}
	}
}
