package tools

import (
	"context"
	"sync"
)

// listeners counts who wants to hear of a resource, over all doors: its upstream is left alone
// when the last goes.
type listeners struct {
	// asking is held by who asks an upstream, so that the end of one's subscription does not
	// cross the beginning of another's; it guards what follows too.
	asking sync.Mutex
	count  map[heard]int
}

// heard is a resource of an upstream.
type heard struct{ server, uri string }

// Subscribe has Options.Changed hear of a resource's changes until end is called, which may be
// called twice. What went wrong is an *Error.
func (h *Hub) Subscribe(ctx context.Context, by Caller, uri string) (end func(context.Context), err error) {
	server, err := h.serverOf(ctx, by, uri)
	if err != nil {
		return nil, err
	}
	h.listeners.asking.Lock()
	defer h.listeners.asking.Unlock()
	if err := h.upstreams.Subscribe(ctx, server, uri); err != nil {
		return nil, toError(h.upstreamError(uri, err))
	}
	of := heard{server, uri}
	h.listeners.count[of]++
	var once sync.Once
	return func(ctx context.Context) { once.Do(func() { h.unsubscribe(ctx, of) }) }, nil
}

func (h *Hub) unsubscribe(ctx context.Context, of heard) {
	h.listeners.asking.Lock()
	defer h.listeners.asking.Unlock()
	if h.listeners.count[of]--; h.listeners.count[of] > 0 {
		return
	}
	delete(h.listeners.count, of)
	if err := h.upstreams.Unsubscribe(context.WithoutCancel(ctx), of.server, of.uri); err != nil {
		h.log.Debug("an upstream goes on telling of a resource", "upstream", of.server, "error", err)
	}
}
