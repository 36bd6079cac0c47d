package tools

import (
	"context"
	"maps"
	"slices"
	"time"

	"comet/internal/upstream"
)

// refreshSoon has a server's tools looked at again.
func (h *Service) refreshSoon(server string) {
	h.staleMu.Lock()
	h.stale[server] = true
	h.staleMu.Unlock()
	select {
	case h.staleAdded <- struct{}{}:
	default:
	}
}

// retryAfter is when a server's tools are looked at again after that failed; it doubles up to
// maxRetry.
const retryAfter, maxRetry = 2 * time.Second, time.Minute

func (h *Service) maintainCatalogue(ctx context.Context) {
	pause := retryAfter
	for {
		if again := h.refreshAll(ctx); again {
			pause = min(2*pause, maxRetry)
		} else {
			pause = retryAfter
		}
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-h.staleAdded:
			wait.Stop()
		case <-wait.C:
		}
	}
}

// refreshAll looks at the tools of the servers that may have changed, and reports whether one
// could not be.
func (h *Service) refreshAll(ctx context.Context) (again bool) {
	h.staleMu.Lock()
	servers := slices.Sorted(maps.Keys(h.stale))
	clear(h.stale)
	h.staleMu.Unlock()
	if len(servers) == 0 {
		return false
	}
	changed := false
	for _, id := range servers {
		differs, err := h.refresh(ctx, id)
		if changed = changed || differs; err != nil {
			h.log.Warn("the tools of an upstream cannot be taken over yet", "upstream", id, "error", err)
			h.staleMu.Lock()
			h.stale[id] = true
			h.staleMu.Unlock()
			again = true
		}
	}
	if changed {
		h.publish()
	}
	return again
}

// refresh takes over a server's tools as they are, none where it is not up, and reports
// whether they are others than before.
func (h *Service) refresh(ctx context.Context, id string) (differs bool, err error) {
	h.refreshing.Lock()
	defer h.refreshing.Unlock()
	s, known := h.status(id)
	var tools []*tool
	if known && s.State == upstream.Ready {
		if tools, err = h.checkDefinitions(ctx, id, h.upstreams.Tools(id)); err != nil {
			return false, err
		}
	}
	h.catalogueMu.Lock()
	before, had := h.upstreamTools[id]
	differs = had != (tools != nil) || !slices.EqualFunc(before, tools, sameTool)
	if tools == nil {
		delete(h.upstreamTools, id)
	} else {
		h.upstreamTools[id] = tools
	}
	h.catalogueMu.Unlock()
	if differs {
		h.index.Replace(id, indexEntries(tools))
	}
	return differs, h.upstreamAgents.update(ctx, id, known && s.State == upstream.Ready, tools)
}

// refreshNow has what was said about a server's tools count before that is answered.
func (h *Service) refreshNow(ctx context.Context, id string) {
	differs, err := h.refresh(ctx, id)
	if err != nil {
		h.refreshSoon(id)
	}
	if differs {
		h.publish()
	}
}

// sameTool reports whether two tools are the same to whoever calls them.
func sameTool(a, b *tool) bool {
	return a.id == b.id && a.digest == b.digest && a.class == b.class && a.quarantined == b.quarantined
}

// publish makes the catalogue of what there is, and tells the doors.
func (h *Service) publish() {
	h.catalogueMu.Lock()
	h.catalogue.Store(newCatalogue(h.builtins, h.upstreamTools))
	h.catalogueMu.Unlock()
	h.opts.OnChange(Change{Kind: ToolsChanged})
}

// WaitForUpstreams waits until no upstream is being started for the first time, or patience has passed.
func (h *Service) WaitForUpstreams(ctx context.Context, patience time.Duration) {
	late := time.NewTimer(patience)
	defer late.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if h.upstreamsSettled() {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-late.C:
			return
		case <-look.C:
		}
	}
}

// upstreamsSettled reports whether every upstream has started or failed to, and the catalogue has the
// tools of those that are ready.
func (h *Service) upstreamsSettled() bool {
	have := h.catalogue.Load().servers
	for _, s := range h.upstreams.Servers() {
		if s.State == upstream.Starting && s.Error == "" || s.State == upstream.Ready && s.Tools > 0 && !slices.Contains(have, s.ID) {
			return false
		}
	}
	return true
}
