package mcp

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/tools"
	"comet/internal/upstream"
)

const (
	// maxSubscriptions limits the subscriptions of one client.
	maxSubscriptions = 100
	// maxUpdates limits the resources whose updates are pending; those of others are dropped.
	maxUpdates = 10_000
	// sweepEvery is the interval for removing subscriptions of disconnected clients.
	sweepEvery = 30 * time.Second
)

// subscriptions tracks which clients subscribe to which resources. Updates are sent from its own
// goroutine, so that a client that does not read blocks only other subscribers.
type subscriptions struct {
	*background.Loop
	server  *Server
	updated *background.Pending[string]
	swept   time.Time // when disconnected clients were removed

	changing sync.Mutex // one request of a client at a time, as in package tools
	mu       sync.Mutex // guards ends
	// ends has the functions that end the subscriptions of each client, by URI.
	ends map[*mcp.ServerSession]map[string]func(context.Context)
}

func newSubscriptions(g *Server) *subscriptions {
	s := &subscriptions{
		server: g, updated: background.NewPending[string](), ends: map[*mcp.ServerSession]map[string]func(context.Context){},
	}
	s.Loop = background.NewLoop(background.NewPollLoop(background.PollOptions{Signal: s.updated.Signal}, s.send).Run)
	return s
}

func (g *Server) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	g.subs.changing.Lock()
	defer g.subs.changing.Unlock()
	if known, err := g.subs.has(r.Session, r.Params.URI); known || err != nil {
		return err
	}
	by, _ := ctx.Value(callerKey{}).(tools.Caller)
	end, err := g.tools.SubscribeResource(ctx, by, r.Params.URI)
	if err != nil {
		return toRPCError(err)
	}
	g.subs.add(r.Session, r.Params.URI, end)
	return nil
}

func (g *Server) unsubscribe(ctx context.Context, r *mcp.UnsubscribeRequest) error {
	g.subs.changing.Lock()
	defer g.subs.changing.Unlock()
	g.subs.remove(ctx, r.Session, r.Params.URI)
	return nil
}

// has reports whether a client has a subscription, or returns an error at its limit of them.
func (s *subscriptions) has(of *mcp.ServerSession, uri string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := s.ends[of][uri] != nil
	if !known && len(s.ends[of]) >= maxSubscriptions {
		return false, invalidParams("a client may subscribe to %d resources", maxSubscriptions)
	}
	return known, nil
}

// add adds a subscription; calling end ends it.
func (s *subscriptions) add(of *mcp.ServerSession, uri string, end func(context.Context)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ends[of] == nil {
		s.ends[of] = map[string]func(context.Context){}
	}
	s.ends[of][uri] = end
}

func (s *subscriptions) remove(ctx context.Context, of *mcp.ServerSession, uri string) {
	s.mu.Lock()
	end := s.ends[of][uri]
	if delete(s.ends[of], uri); len(s.ends[of]) == 0 {
		delete(s.ends, of)
	}
	s.mu.Unlock()
	if end != nil {
		end(ctx)
	}
}

// send sends pending updates, and removes subscriptions of disconnected clients every sweepEvery.
func (s *subscriptions) send(ctx context.Context) (time.Duration, error) {
	for _, uri := range s.updated.Take() {
		for _, server := range s.server.sdkServers() {
			if err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
				s.server.log.Debug("a resource notification failed", "uri", strings.ToValidUTF8(uri, "?"), "error", err)
			}
		}
	}
	if time.Since(s.swept) >= sweepEvery {
		s.sweep(ctx)
		s.swept = time.Now()
	}
	return sweepEvery - time.Since(s.swept), nil
}

// sweep removes the subscriptions of disconnected clients, which the SDK drops without notice.
func (s *subscriptions) sweep(ctx context.Context) {
	s.mu.Lock()
	known := slices.Collect(maps.Keys(s.ends)) // a session that is added meanwhile may be missing in alive
	s.mu.Unlock()
	alive := map[*mcp.ServerSession]bool{}
	for _, server := range s.server.sdkServers() {
		for session := range server.Sessions() {
			alive[session] = true
		}
	}
	var ended []func(context.Context)
	s.mu.Lock()
	for _, session := range known {
		if !alive[session] {
			ended = slices.AppendSeq(ended, maps.Values(s.ends[session]))
			delete(s.ends, session)
		}
	}
	s.mu.Unlock()
	for _, end := range ended {
		end(ctx)
	}
}

// OnChange notifies clients of a change of the tools. It does not block. The SDK notifies its
// clients of a changed list when an item is added.
func (g *Server) OnChange(c upstream.Change) {
	if c.Kind == upstream.ResourceUpdated {
		if g.subs.updated.Len() < maxUpdates {
			g.subs.updated.Add(c.URI)
		}
		return
	}
	for _, s := range g.sdkServers() {
		switch c.Kind {
		case upstream.Tools:
			g.addDispatchTool(s)
		case upstream.Prompts:
			s.AddPrompt(&mcp.Prompt{Name: placeholderPrompt}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
				return nil, invalidParams("unknown prompt")
			})
		case upstream.Resources:
			s.AddResource(&mcp.Resource{URI: placeholderResource, Name: placeholderResource}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
				return nil, mcp.ResourceNotFoundError(r.Params.URI)
			})
		}
	}
}
