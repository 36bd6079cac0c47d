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

// maxProgress limits the undelivered updates of one request.
const maxProgress = 64

// ProgressQueue delivers progress from its own goroutine, so that the upstream does not wait for the
// receiver. Beyond maxProgress undelivered updates, it drops the oldest ones.
type ProgressQueue struct {
	pending chan Progress
	loop    *background.Loop
}

// NewProgressQueue calls tell with each update until Close.
func NewProgressQueue(tell func(Progress)) *ProgressQueue {
	q := &ProgressQueue{pending: make(chan Progress, maxProgress)}
	q.loop = background.NewLoop(func(ctx context.Context) {
		for ctx.Err() == nil {
			select {
			case p := <-q.pending:
				tell(p)
			case <-ctx.Done():
			}
		}
		for len(q.pending) > 0 {
			tell(<-q.pending)
		}
	})
	_ = q.loop.Start(context.Background()) // it never fails
	return q
}

// Add adds an update. It must not be called concurrently.
func (q *ProgressQueue) Add(p Progress) {
	for {
		select {
		case q.pending <- p:
			return
		default:
		}
		select {
		case <-q.pending:
		default:
		}
	}
}

// Close delivers the pending updates and returns when that is done.
func (q *ProgressQueue) Close() {
	_ = q.loop.Stop(context.Background()) // its context does not end
}
