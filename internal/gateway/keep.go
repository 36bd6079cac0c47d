package gateway

import (
	"context"
	"maps"
	"slices"
	"time"

	"comet/internal/upstream"
)

// refreshSoon has a server's tools looked at again.
func (g *Gateway) refreshSoon(server string) {
	g.staleMu.Lock()
	g.stale[server] = true
	g.staleMu.Unlock()
	select {
	case g.nudge <- struct{}{}:
	default:
	}
}

// retryAfter is when a server's tools are looked at again after that failed; it doubles up to
// maxRetry.
const retryAfter, maxRetry = 2 * time.Second, time.Minute

func (g *Gateway) keepCatalogue(ctx context.Context) {
	pause := retryAfter
	for {
		if again := g.refreshAll(ctx); again {
			pause = min(2*pause, maxRetry)
		} else {
			pause = retryAfter
		}
		wait := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			wait.Stop()
			return
		case <-g.nudge:
			wait.Stop()
		case <-wait.C:
		}
	}
}

// refreshAll looks at the tools of the servers that may have changed, and reports whether one
// could not be.
func (g *Gateway) refreshAll(ctx context.Context) (again bool) {
	g.staleMu.Lock()
	servers := slices.Sorted(maps.Keys(g.stale))
	clear(g.stale)
	g.staleMu.Unlock()
	if len(servers) == 0 {
		return false
	}
	changed := false
	for _, id := range servers {
		differs, err := g.refresh(ctx, id)
		if changed = changed || differs; err != nil {
			g.log.Warn("the tools of an upstream cannot be taken over yet", "upstream", id, "error", err)
			g.staleMu.Lock()
			g.stale[id] = true
			g.staleMu.Unlock()
			again = true
		}
	}
	if changed {
		g.publish()
	}
	return again
}

// refresh takes over a server's tools as they are, none where it is not up, and reports
// whether they are others than before.
func (g *Gateway) refresh(ctx context.Context, id string) (differs bool, err error) {
	s, known := g.status(id)
	var tools []*tool
	if known && s.State == upstream.Ready {
		if tools, err = g.judge(ctx, id, g.upstreams.Tools(id)); err != nil {
			return false, err
		}
	}
	g.changing.Lock()
	before, had := g.parts[id]
	differs = had != (tools != nil) || !slices.EqualFunc(before, tools, sameTool)
	if tools == nil {
		delete(g.parts, id)
	} else {
		g.parts[id] = tools
	}
	g.changing.Unlock()
	if differs {
		g.index.Replace(id, indexedOf(tools))
	}
	return differs, g.agents.settle(ctx, id, known && s.State == upstream.Ready, tools)
}

// sameTool reports whether two tools are the same to whoever calls them.
func sameTool(a, b *tool) bool {
	return a.id == b.id && a.digest == b.digest && a.class == b.class && a.quarantined == b.quarantined
}

// publish makes the catalogue of what there is, and tells the clients.
func (g *Gateway) publish() {
	g.changing.Lock()
	next := newCatalogue(g.builtins, g.parts)
	g.changing.Unlock()
	g.catalogue.Store(next)
	g.notifyTools()
}

// Settle waits until no upstream is being started for the first time, or patience has passed.
func (g *Gateway) Settle(ctx context.Context, patience time.Duration) {
	late := time.NewTimer(patience)
	defer late.Stop()
	look := time.NewTicker(20 * time.Millisecond)
	defer look.Stop()
	for {
		if g.settled() {
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

// settled reports whether every upstream has started or failed to, and the catalogue has the
// tools of those that are ready.
func (g *Gateway) settled() bool {
	have := g.catalogue.Load().servers
	for _, s := range g.upstreams.Servers() {
		if s.State == upstream.Starting && s.Error == "" || s.State == upstream.Ready && s.Tools > 0 && !slices.Contains(have, s.ID) {
			return false
		}
	}
	return true
}
