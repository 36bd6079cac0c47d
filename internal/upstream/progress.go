package upstream

import (
	"encoding/json"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// messageHook looks at a message in the order in which an upstream sent it, and reports whether it
// has taken it: the SDK hears no more of that.
type messageHook func(jsonrpc.Message) (taken bool)

// progress tells a call how far it is. The SDK would do that on a goroutine of its own, which
// the answer to the call overtakes; here what was said before the answer is told before it.
func (s *session) progress(msg jsonrpc.Message) (taken bool) {
	r, ok := msg.(*jsonrpc.Request)
	if !ok || r.Method != "notifications/progress" || r.IsCall() {
		return false
	}
	var p mcp.ProgressNotificationParams
	if json.Unmarshal(r.Params, &p) != nil {
		return true // nobody could be told
	}
	token, _ := p.ProgressToken.(string)
	s.calls.mu.Lock()
	c := s.calls.running[token]
	s.calls.mu.Unlock()
	if c == nil || c.Progress == nil {
		return true // late, or nobody's
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.done {
		c.CallOptions.Progress(Progress{Progress: p.Progress, Total: p.Total, Message: p.Message})
	}
	return true
}

// LatestProgress hands progress on from a goroutine of its own, the newest where several came
// meanwhile: who makes progress waits for nobody who is told of it.
type LatestProgress struct {
	pending chan Progress // has the newest that was not told
	closed  chan struct{}
	running sync.WaitGroup
}

// NewLatestProgress returns what has tell told, until it is closed.
func NewLatestProgress(tell func(Progress)) *LatestProgress {
	l := &LatestProgress{pending: make(chan Progress, 1), closed: make(chan struct{})}
	l.running.Go(func() {
		for {
			select {
			case p := <-l.pending:
				tell(p)
			case <-l.closed:
				select {
				case p := <-l.pending: // the last word
					tell(p)
				default:
				}
				return
			}
		}
	})
	return l
}

// Update takes the place of what was not told yet. One goroutine at a time may call it.
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

// Close waits until all has been told.
func (l *LatestProgress) Close() {
	close(l.closed)
	l.running.Wait()
}
