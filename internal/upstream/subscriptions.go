package upstream

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
)

const ackWait = 5 * time.Second

// Subscribe reports changes of a resource as ResourceUpdated, also in later sessions. Subscriptions
// are counted: each Subscribe needs an Unsubscribe.
func (m *Manager) Subscribe(ctx context.Context, id, uri string) error {
	s, err := m.readySession(ctx, id)
	if err != nil {
		return err
	}
	u, err := m.find(id)
	if err != nil {
		return err
	}
	first, err := u.addSubscription(uri)
	if err != nil || !first {
		return err
	}
	if err := s.subscribe(ctx, uri); err != nil {
		u.removeSubscription(uri)
		return err
	}
	return nil
}

// Unsubscribe undoes one Subscribe.
func (m *Manager) Unsubscribe(ctx context.Context, id, uri string) error {
	u, err := m.find(id)
	if err != nil {
		return err
	}
	s := u.ready()
	if last := u.removeSubscription(uri); !last || s == nil {
		return nil
	}
	// Servers of the Go SDK (1.8.0) end all subscriptions of a session with one of them.
	s.notificationsLost.Store(true)
	_, err = runRequest(ctx, s, "the end of a subscription", nil, func(ctx context.Context, _ *call) (struct{}, error) {
		return struct{}{}, s.client.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri})
	})
	return err
}

// subscribe returns when the upstream has acknowledged the subscription. Since 2026-07-28 the
// acknowledgement is a separate message, which some servers never send.
func (s *session) subscribe(ctx context.Context, uri string) error {
	acknowledged := make(chan struct{})
	s.acks.Store(uri, acknowledged)
	defer s.acks.CompareAndDelete(uri, acknowledged)
	_, err := runRequest(ctx, s, "a subscription", nil, func(ctx context.Context, _ *call) (struct{}, error) {
		return struct{}{}, s.client.Subscribe(ctx, &mcp.SubscribeParams{URI: uri})
	})
	if err != nil || !s.stateless() {
		return err
	}
	select {
	case <-acknowledged:
	case <-time.After(ackWait):
	case <-s.life.Done():
	case <-ctx.Done():
	}
	return nil
}

// addSubscription counts a subscription and reports whether it is the first one of its resource.
func (u *supervisor) addSubscription(uri string) (first bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.subscribed[uri] == 0 && len(u.subscribed) >= MaxSubscriptions {
		return false, failure(ReasonBusy, u.server.ID, "has %d subscribed resources, the limit; %s cannot be added", MaxSubscriptions, input.Quote(uri))
	}
	u.subscribed[uri]++
	return u.subscribed[uri] == 1, nil
}

// removeSubscription reports whether it was the last one of its resource.
func (u *supervisor) removeSubscription(uri string) (last bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	last = u.subscribed[uri] == 1
	if u.subscribed[uri]--; u.subscribed[uri] <= 0 {
		delete(u.subscribed, uri)
	}
	return last
}

// resubscribe repeats the subscriptions of the last session in a new one.
func (u *supervisor) resubscribe(ctx context.Context, s *session) {
	u.mu.Lock()
	uris := slices.Collect(maps.Keys(u.subscribed))
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, u.opts.StartTimeout)
	defer cancel()
	for _, uri := range uris {
		if err := s.subscribe(ctx, uri); err != nil {
			u.opts.Logger.Warn("a resource cannot be subscribed again", "upstream", u.server.ID, "error", err)
		}
	}
}

// receiveAcknowledgements is a middleware for the acknowledgements of subscriptions.
func (s *session) receiveAcknowledgements(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.SubscriptionsAcknowledgedParams); ok && p != nil {
			for _, uri := range p.Notifications.ResourceSubscriptions {
				if acknowledged, ok := s.acks.LoadAndDelete(uri); ok {
					close(acknowledged.(chan struct{}))
				}
			}
		}
		return next(ctx, method, req)
	}
}
