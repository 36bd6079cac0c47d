package mcp

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/lifecycle"
	"comet/internal/tools"
)

const (
	// maxSubscriptions limits the subscriptions of one client.
	maxSubscriptions = 100
	// sweepEvery is the interval for removing subscriptions of disconnected clients.
	sweepEvery = 30 * time.Second
)

// subscriptions tracks which clients subscribe to which resources. Updates are sent from its own
// goroutine, so that a client that does not read blocks only other subscribers.
type subscriptions struct {
	*lifecycle.Loop
	server *Server

	mu sync.Mutex
	// byURI maps a URI to its clients and the functions that end their subscriptions. counts has
	// the number of subscriptions of each client.
	byURI   map[string]map[*mcp.ServerSession]func(context.Context)
	counts  map[*mcp.ServerSession]int
	updated map[string]bool
	wake    chan struct{}
}

func newSubscriptions(g *Server) *subscriptions {
	s := &subscriptions{
		server: g, byURI: map[string]map[*mcp.ServerSession]func(context.Context){}, counts: map[*mcp.ServerSession]int{},
		updated: map[string]bool{}, wake: make(chan struct{}, 1),
	}
	s.Loop = lifecycle.NewLoop(s.run)
	return s
}

// subscribe subscribes a client to a resource.
func (g *Server) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	by, _ := ctx.Value(callerKey{}).(tools.Caller)
	if !g.subs.reserve(r.Session) {
		return invalidParams("a client may subscribe to %d resources", maxSubscriptions)
	}
	end, err := g.tools.SubscribeResource(ctx, by, r.Params.URI)
	if err != nil {
		g.subs.release(r.Session)
		return toRPCError(err)
	}
	if !g.subs.add(r.Params.URI, r.Session, end) { // it is subscribed already
		end(ctx)
		g.subs.release(r.Session)
	}
	return nil
}

// unsubscribe ends a subscription.
func (g *Server) unsubscribe(ctx context.Context, r *mcp.UnsubscribeRequest) error {
	g.subs.remove(ctx, r.Params.URI, r.Session)
	return nil
}

// reserve counts one more subscription of a client. It returns false at the limit.
func (s *subscriptions) reserve(of *mcp.ServerSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[of] >= maxSubscriptions {
		return false
	}
	s.counts[of]++
	return true
}

// release undoes reserve.
func (s *subscriptions) release(of *mcp.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.counts[of]--; s.counts[of] <= 0 {
		delete(s.counts, of)
	}
}

// add records a reserved subscription. It returns false if the client has it already.
func (s *subscriptions) add(uri string, of *mcp.ServerSession, end func(context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byURI[uri][of] != nil {
		return false
	}
	if s.byURI[uri] == nil {
		s.byURI[uri] = map[*mcp.ServerSession]func(context.Context){}
	}
	s.byURI[uri][of] = end
	return true
}

// remove ends a subscription of a client.
func (s *subscriptions) remove(ctx context.Context, uri string, of *mcp.ServerSession) {
	s.mu.Lock()
	end := s.byURI[uri][of]
	delete(s.byURI[uri], of)
	if len(s.byURI[uri]) == 0 {
		delete(s.byURI, uri)
	}
	s.mu.Unlock()
	if end != nil {
		s.release(of)
		end(ctx)
	}
}

// resourceUpdated notifies the subscribers of a resource. Several updates may be merged.
func (s *subscriptions) resourceUpdated(uri string) {
	s.mu.Lock()
	if s.byURI[uri] != nil {
		s.updated[uri] = true
	}
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *subscriptions) run(ctx context.Context) {
	sweep := time.NewTicker(sweepEvery)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			s.flush(ctx)
		case <-sweep.C:
			s.sweep(ctx)
		}
	}
}

func (s *subscriptions) flush(ctx context.Context) {
	s.mu.Lock()
	uris := s.updated
	s.updated = map[string]bool{}
	s.mu.Unlock()
	for uri := range uris {
		for _, server := range s.server.sdkServers() {
			if err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
				s.server.log.Debug("a resource notification failed", "uri", strings.ToValidUTF8(uri, "?"), "error", err)
			}
		}
	}
}

// sweep removes the subscriptions of disconnected clients, which the SDK drops without notice.
func (s *subscriptions) sweep(ctx context.Context) {
	alive := map[*mcp.ServerSession]bool{}
	for _, server := range s.server.sdkServers() {
		for session := range server.Sessions() {
			alive[session] = true
		}
	}
	s.mu.Lock()
	gone := map[string][]*mcp.ServerSession{}
	for uri, sessions := range s.byURI {
		for session := range maps.Keys(sessions) {
			if !alive[session] {
				gone[uri] = append(gone[uri], session)
			}
		}
	}
	s.mu.Unlock()
	for uri, sessions := range gone {
		for _, session := range sessions {
			s.remove(ctx, uri, session)
		}
	}
}

// OnChange notifies clients of a change of the tools. It does not block.
func (g *Server) OnChange(c tools.Change) {
	switch c.Kind {
	case tools.ToolsChanged:
		g.notifyTools()
	case tools.PromptsChanged:
		g.notifyPrompts()
	case tools.ResourcesChanged:
		g.notifyResources()
	case tools.ResourceUpdated:
		g.subs.resourceUpdated(c.URI)
	}
}

// notifyTools, notifyPrompts and notifyResources make the SDK notify its clients of a changed list.
// The SDK does so when an item is added.
func (g *Server) notifyTools() {
	for _, s := range g.sdkServers() {
		s.AddTool(&mcp.Tool{Name: dispatchTool, InputSchema: json.RawMessage(`{"type":"object"}`)}, g.handleToolCall)
	}
}

func (g *Server) notifyPrompts() {
	for _, s := range g.sdkServers() {
		s.AddPrompt(&mcp.Prompt{Name: placeholderPrompt}, func(context.Context, *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return nil, invalidParams("unknown prompt")
		})
	}
}

func (g *Server) notifyResources() {
	for _, s := range g.sdkServers() {
		s.AddResource(&mcp.Resource{URI: placeholderResource, Name: placeholderResource}, func(_ context.Context, r *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return nil, mcp.ResourceNotFoundError(r.Params.URI)
		})
	}
}
