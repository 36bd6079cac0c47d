package gateway

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
	g *Gateway

	// asking is held by who asks an upstream, so that the end of one client's subscription does
	// not cross the beginning of another's.
	asking sync.Mutex

	mu      sync.Mutex
	by      map[string]map[*mcp.ServerSession]string // by URI, with the server that has it
	updated map[string]bool
	nudge   chan struct{}
}

func newSubscriptions(g *Gateway) *subscriptions {
	s := &subscriptions{g: g, by: map[string]map[*mcp.ServerSession]string{}, updated: map[string]bool{}, nudge: make(chan struct{}, 1)}
	s.Loop = lifecycle.NewLoop(s.run)
	return s
}

// subscribe has a client hear of changes of a resource.
func (g *Gateway) subscribe(ctx context.Context, r *mcp.SubscribeRequest) error {
	by, _ := ctx.Value(callerKey{}).(tools.Caller)
	uri := r.Params.URI
	if g.subs.count(r.Session) >= maxSubscribed {
		return invalid("a client may hear of %d resources", maxSubscribed)
	}
	g.subs.asking.Lock()
	defer g.subs.asking.Unlock()
	server, err := g.hub.Subscribe(ctx, by, uri)
	if err != nil {
		return protocolError(err)
	}
	g.subs.mu.Lock()
	defer g.subs.mu.Unlock()
	if g.subs.by[uri] == nil {
		g.subs.by[uri] = map[*mcp.ServerSession]string{}
	}
	g.subs.by[uri][r.Session] = server
	return nil
}

// unsubscribe ends that; the upstream is left alone when the last client goes.
func (g *Gateway) unsubscribe(ctx context.Context, r *mcp.UnsubscribeRequest) error {
	g.subs.drop(ctx, r.Params.URI, r.Session)
	return nil
}

func (s *subscriptions) count(of *mcp.ServerSession) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sessions := range s.by {
		if _, ok := sessions[of]; ok {
			n++
		}
	}
	return n
}

// drop ends a client's subscription.
func (s *subscriptions) drop(ctx context.Context, uri string, of *mcp.ServerSession) {
	s.asking.Lock()
	defer s.asking.Unlock()
	s.mu.Lock()
	server, ok := s.by[uri][of]
	delete(s.by[uri], of)
	last := len(s.by[uri]) == 0
	if last {
		delete(s.by, uri)
	}
	s.mu.Unlock()
	if !ok || !last {
		return
	}
	if err := s.g.hub.Unsubscribe(context.WithoutCancel(ctx), server, uri); err != nil {
		s.g.log.Debug("an upstream goes on telling of a resource", "upstream", server, "error", err)
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
