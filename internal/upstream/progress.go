package upstream

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
)

// notified passes a progress notification or a log message to its call, and marks questions. The SDK
// passes notifications on in another goroutine, so the response can overtake them; notified delivers
// them in order, before the response. token is that of the call whose stream has the message, "" if that is unknown.
func (s *session) notified(msg jsonrpc.Message, token string) (taken bool) {
	r, ok := msg.(*jsonrpc.Request)
	if !ok {
		return false
	}
	if r.IsCall() {
		s.calls.mark(r, token)
		return false
	}
	of := s.calls.find(token)
	var tell func(*CallOptions)
	switch r.Method {
	case "notifications/progress":
		var p mcp.ProgressNotificationParams
		if json.Unmarshal(r.Params, &p) != nil {
			return true // an invalid notification
		}
		token, _ := p.ProgressToken.(string)
		of = s.calls.find(token)
		tell = func(o *CallOptions) {
			if o.Progress != nil {
				o.Progress(Progress{Progress: p.Progress, Total: p.Total, Message: p.Message})
			}
		}
	case "notifications/message":
		var p mcp.LoggingMessageParams //nolint:staticcheck // revision 2025-11-25 has it
		if json.Unmarshal(r.Params, &p) != nil {
			return true
		}
		tell = func(o *CallOptions) {
			if o.Log != nil {
				o.Log(&p)
			}
		}
		if of == nil {
			of = s.calls.sole()
		}
	default:
		return false
	}
	if of == nil {
		return true // the call has ended, or could be any of several
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	if !of.done {
		tell(&of.CallOptions)
	}
	return true
}

// maxNotifications limits the undelivered notifications of one request.
const maxNotifications = 64

// Notifications delivers the notifications of a request from its own goroutine, so that the upstream
// does not wait for the receiver. Beyond maxNotifications undelivered ones, it drops the oldest.
type Notifications struct {
	pending chan func()
	loop    *background.Loop
}

// NewNotifications returns an empty queue, which delivers until Close.
func NewNotifications() *Notifications {
	q := &Notifications{pending: make(chan func(), maxNotifications)}
	q.loop = background.NewLoop(func(ctx context.Context) {
		for ctx.Err() == nil {
			select {
			case tell := <-q.pending:
				tell()
			case <-ctx.Done():
			}
		}
		for len(q.pending) > 0 {
			(<-q.pending)()
		}
	})
	_ = q.loop.Start(context.Background()) // it never fails
	return q
}

// Add adds a notification, which tell delivers. It must not be called concurrently.
func (q *Notifications) Add(tell func()) {
	for {
		select {
		case q.pending <- tell:
			return
		default:
		}
		select {
		case <-q.pending:
		default:
		}
	}
}

// Close delivers the pending notifications and returns when that is done.
func (q *Notifications) Close() {
	_ = q.loop.Stop(context.Background()) // its context does not end
}
