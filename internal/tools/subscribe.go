package tools

import (
	"context"
	"sync"
)

// SubscribeResource has Options.Changed hear of a resource's changes until end is called, which may be
// called twice. The upstreams count who listens, over all doors: the last one's end ends it.
// What went wrong is an *Error.
func (h *Service) SubscribeResource(ctx context.Context, by Caller, uri string) (end func(context.Context), err error) {
	server, err := h.resourceServer(ctx, by, uri)
	if err != nil {
		return nil, err
	}
	h.subscribing.Lock()
	defer h.subscribing.Unlock()
	if err := h.upstreams.Subscribe(ctx, server, uri); err != nil {
		return nil, toError(h.upstreamError(uri, err))
	}
	var once sync.Once
	return func(ctx context.Context) { once.Do(func() { h.unsubscribe(ctx, server, uri) }) }, nil
}

func (h *Service) unsubscribe(ctx context.Context, server, uri string) {
	h.subscribing.Lock()
	defer h.subscribing.Unlock()
	if err := h.upstreams.Unsubscribe(context.WithoutCancel(ctx), server, uri); err != nil {
		h.log.Debug("an upstream goes on telling of a resource", "upstream", server, "error", err)
	}
}
