package upstream

import (
	"context"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// subscriptionAcks hears which resources an upstream has begun to watch. The zero value is ready.
type subscriptionAcks struct {
	mu      sync.Mutex
	waiting map[string]chan struct{}
}

// expect returns a channel that is closed when the resource is watched.
func (a *subscriptionAcks) expect(uri string) (acknowledged <-chan struct{}, forget func()) {
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

// middleware is middleware: the SDK has no handler for this.
func (a *subscriptionAcks) middleware(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.SubscriptionsAcknowledgedParams); ok && p != nil {
			a.acknowledge(p.Notifications.ResourceSubscriptions)
		}
		return next(ctx, method, req)
	}
}

func (a *subscriptionAcks) acknowledge(uris []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, uri := range uris {
		if ch, ok := a.waiting[uri]; ok {
			delete(a.waiting, uri)
			close(ch)
		}
	}
}
