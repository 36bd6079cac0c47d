package upstream

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
)

// progress passes a progress notification to its call. The SDK would do so on another goroutine,
// which the response can overtake; here all progress before the response is delivered before it.
func (s *session) progress(msg jsonrpc.Message) (taken bool) {
	r, ok := msg.(*jsonrpc.Request)
	if !ok || r.Method != "notifications/progress" || r.IsCall() {
		return false
	}
	var p mcp.ProgressNotificationParams
	if json.Unmarshal(r.Params, &p) != nil {
		return true // an invalid notification
	}
	token, _ := p.ProgressToken.(string)
	s.calls.mu.Lock()
	c := s.calls.running[token]
	s.calls.mu.Unlock()
	if c == nil || c.Progress == nil {
		return true // the call has ended, or wants no progress
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.CallOptions.Progress(Progress{Progress: p.Progress, Total: p.Total, Message: p.Message})
	}
	return true
}

// LatestProgress delivers progress from its own goroutine, so that the upstream does not wait for
// the receiver. Of several pending updates only the newest is delivered.
type LatestProgress struct {
	pending chan Progress // holds the newest undelivered update
	loop    *background.Loop
}

// NewLatestProgress calls tell with each update until Close.
func NewLatestProgress(tell func(Progress)) *LatestProgress {
	l := &LatestProgress{pending: make(chan Progress, 1)}
	l.loop = background.NewLoop(func(ctx context.Context) {
		for ctx.Err() == nil {
			select {
			case p := <-l.pending:
				tell(p)
			case <-ctx.Done():
			}
		}
		if len(l.pending) > 0 {
			tell(<-l.pending)
		}
	})
	_ = l.loop.Start(context.Background()) // it never fails
	return l
}

// Update replaces the pending update. It must not be called concurrently.
func (l *LatestProgress) Update(p Progress) {
	select {
	case <-l.pending:
	default:
	}
	select {
	case l.pending <- p:
	default:
	}
}

// Close delivers the pending update and returns when that is done.
func (l *LatestProgress) Close() {
	_ = l.loop.Stop(context.Background()) // its context does not end
}
