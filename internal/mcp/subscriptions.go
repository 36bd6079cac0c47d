package mcp

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/lifecycle"
	"comet/internal/tools"
)

const (
	// maxSubscribed is how many resources one client may hear of.
	maxSubscribed = 100
	// sweepEvery is how often it is looked for clients that went without saying so.
	sweepEvery = 30 * time.Second
)

// subscriptions are which clients want to hear of which resources. Changes are told from a
// goroutine of their own: a client that does not read holds up nobody but those who wait for
// the same.
type subscriptions struct {
	*lifecycle.Loop
	g *Server

	mu sync.Mutex
	// by has the clients by URI, each with what ends its subscription, and of how many each has.
	by      map[string]map[*mcp.ServerSession]func(context.Context)
	of      map[*mcp.ServerSession]int
	updated map[string]bool
	nudge   chan struct{}
}

func newSubscriptions(g *Server) *subscriptions {
	s := &subscriptions{
		g: g, by: map[string]map[*mcp.ServerSession]func(context.Context){}, of: map[*mcp.ServerSession]int{},
		updated: map[string]bool{}, nudge: make(chan struct{}, 1),
	}
	s.Loop = lifecycle.NewLoop(s.run)
	return s
}

// subscribe has a client hear of changes of a resource.
func (g *Server) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	by, _ := ctx.Value(callerKey{}).(tools.Caller)
	if !g.subs.enter(r.Session) {
		return invalid("a client may hear of %d resources", maxSubscribed)
	}
	end, err := g.hub.SubscribeResource(ctx, by, r.Params.URI)
	if err != nil {
		g.subs.leave(r.Session)
		return protocolError(err)
	}
	if !g.subs.add(r.Params.URI, r.Session, end) { // it hears of it already
		end(ctx)
		g.subs.leave(r.Session)
	}
	return nil
}

// unsubscribe ends that.
func (g *Server) unsubscribe(ctx context.Context, r *mcp.UnsubscribeRequest) error {
	g.subs.drop(ctx, r.Params.URI, r.Session)
	return nil
}

// enter takes a place for one more resource of a client, where it may hear of one more.
func (s *subscriptions) enter(of *mcp.ServerSession) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[of] >= maxSubscribed {
		return false
	}
	s.of[of]++
	return true
}

// leave gives a place back.
func (s *subscriptions) leave(of *mcp.ServerSession) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of[of]--; s.of[of] <= 0 {
		delete(s.of, of)
	}
}

// add notes a subscription that has a place, unless the client has it already.
func (s *subscriptions) add(uri string, of *mcp.ServerSession, end func(context.Context)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by[uri][of] != nil {
		return false
	}
	if s.by[uri] == nil {
		s.by[uri] = map[*mcp.ServerSession]func(context.Context){}
	}
	s.by[uri][of] = end
	return true
}

// drop ends a client's subscription.
func (s *subscriptions) drop(ctx context.Context, uri string, of *mcp.ServerSession) {
	s.mu.Lock()
	end := s.by[uri][of]
	delete(s.by[uri], of)
	if len(s.by[uri]) == 0 {
		delete(s.by, uri)
	}
	s.mu.Unlock()
	if end != nil {
		s.leave(of)
		end(ctx)
	}
}

// tell has the clients told of a resource's change, once however often it changed meanwhile.
func (s *subscriptions) tell(uri string) {
	s.mu.Lock()
	if s.by[uri] != nil {
		s.updated[uri] = true
	}
	s.mu.Unlock()
	select {
	case s.nudge <- struct{}{}:
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
		case <-s.nudge:
			s.tellAll(ctx)
		case <-sweep.C:
			s.sweep(ctx)
		}
	}
}

func (s *subscriptions) tellAll(ctx context.Context) {
	s.mu.Lock()
	uris := s.updated
	s.updated = map[string]bool{}
	s.mu.Unlock()
	for uri := range uris {
		for _, server := range s.g.everyServer() {
			if err := server.ResourceUpdated(ctx, &mcp.ResourceUpdatedNotificationParams{URI: uri}); err != nil {
				s.g.log.Debug("clients do not hear of a resource", "uri", strings.ToValidUTF8(uri, "?"), "error", err)
			}
		}
	}
}

// sweep drops the subscriptions of clients that went: the SDK forgets them without a word.
func (s *subscriptions) sweep(ctx context.Context) {
	alive := map[*mcp.ServerSession]bool{}
	for _, server := range s.g.everyServer() {
		for session := range server.Sessions() {
			alive[session] = true
		}
	}
	s.mu.Lock()
	gone := map[string][]*mcp.ServerSession{}
	for uri, sessions := range s.by {
		for session := range maps.Keys(sessions) {
			if !alive[session] {
				gone[uri] = append(gone[uri], session)
			}
		}
	}
	s.mu.Unlock()
	for uri, sessions := range gone {
		for _, session := range sessions {
			s.drop(ctx, uri, session)
		}
	}
}
