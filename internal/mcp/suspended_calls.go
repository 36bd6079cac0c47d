package mcp

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/tools"
)

const (
	// maxSuspended is how many calls may wait for their client's answer, parkedFor how long.
	maxSuspended   = 1000
	suspendTimeout = 5 * time.Minute
	// maxSuspendedPerToken is how many of them may be one token's.
	maxSuspendedPerToken = 100
	// questionName is under which name the client's answer comes.
	questionName = "question"
)

// suspendedCalls are the calls that wait for an answer of their client. A client of the stateless
// revision is asked by the result of its call, and answers with the next: the call to the
// upstream goes on in between (MCP 2026-07-28, multi round-trip requests).
type suspendedCalls struct {
	clock   func() time.Time
	running sync.WaitGroup // calls under way
	mu      sync.Mutex
	calls   map[string]*suspendedCall
	all     map[*suspendedCall]bool // also those that wait for no answer
}

// suspendedCall is one such call.
type suspendedCall struct {
	tokenID, name string
	since         time.Time
	question      chan *mcp.ElicitParams
	answer        chan *mcp.ElicitResult
	done          chan callOutcome
	cancel        context.CancelFunc
}

type callOutcome struct {
	res *mcp.CallToolResult
	err error
}

func newSuspendedCalls(clock func() time.Time) *suspendedCalls {
	return &suspendedCalls{clock: clock, calls: map[string]*suspendedCall{}, all: map[*suspendedCall]bool{}}
}

// start makes a call in the background, which may ask.
func (p *suspendedCalls) start(ctx context.Context, tokenID, name string, fn func(context.Context, func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)) (*mcp.CallToolResult, error)) *suspendedCall {
	w := &suspendedCall{
		tokenID: tokenID, name: name, since: p.clock(),
		question: make(chan *mcp.ElicitParams), answer: make(chan *mcp.ElicitResult), done: make(chan callOutcome, 1),
	}
	// The request that began it ends when the client is asked.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	p.mu.Lock()
	p.all[w] = true
	p.mu.Unlock()
	p.running.Go(func() {
		defer cancel()
		res, err := fn(inner, w.ask)
		w.done <- callOutcome{res, err}
		p.remove(w)
	})
	return w
}

// remove drops a call that has ended. Whoever comes back for it within the time finds how.
func (p *suspendedCalls) remove(w *suspendedCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, w)
}

// ask waits for the client's answer.
func (w *suspendedCall) ask(ctx context.Context, q *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	late := time.NewTimer(suspendTimeout)
	defer late.Stop()
	select {
	case w.question <- q:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}
	select {
	case a := <-w.answer:
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late.C:
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}
}

// next waits until the call ends or asks; state is then under what the answer is to come.
func (p *suspendedCalls) next(ctx context.Context, w *suspendedCall) (res *mcp.CallToolResult, err error) {
	select {
	case out := <-w.done:
		return out.res, out.err
	case q := <-w.question:
		state, ok := p.suspend(w)
		if !ok {
			w.cancel()
			return nil, toolError(tools.CodeServerError, "too many calls wait for their clients' answers; try again later")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{}, InputRequests: mcp.InputRequestMap{questionName: q}, RequestState: state}, nil
	case <-ctx.Done():
		w.cancel()
		return nil, ctx.Err()
	}
}

// suspend keeps a call until its answer comes. Those that have waited too long are given up.
func (p *suspendedCalls) suspend(w *suspendedCall) (state string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, own := p.clock(), 0
	for key, old := range p.calls {
		switch {
		case now.Sub(old.since) > suspendTimeout:
			old.cancel()
			delete(p.calls, key)
		case old.tokenID == w.tokenID:
			own++
		}
	}
	if len(p.calls) >= maxSuspended || own >= maxSuspendedPerToken {
		return "", false
	}
	state, w.since = rand.Text(), now
	p.calls[state] = w
	return state, true
}

// resume takes up a call with its client's answer. The call is the token's own, and of the
// same tool.
func (p *suspendedCalls) resume(ctx context.Context, tokenID, name, state string, answers mcp.InputResponseMap) (*mcp.CallToolResult, error) {
	p.mu.Lock()
	w := p.calls[state]
	if w != nil && (w.tokenID != tokenID || w.name != name) {
		w = nil
	}
	if w != nil {
		delete(p.calls, state)
	}
	p.mu.Unlock()
	if w == nil {
		return nil, toolError(tools.CodeInvalidArguments, "no call waits for this answer: it was answered, or has waited longer than %s, or another replica made it; call the tool again", suspendTimeout)
	}
	answer, ok := answers[questionName].(*mcp.ElicitResult)
	if !ok {
		answer = &mcp.ElicitResult{Action: "cancel"}
	}
	select {
	case w.answer <- answer:
	case out := <-w.done:
		return out.res, out.err
	case <-ctx.Done():
		w.cancel()
		return nil, ctx.Err()
	}
	return p.next(ctx, w)
}

// stop gives up all calls that go on behind their clients' backs, and waits for their end.
func (p *suspendedCalls) stop() {
	p.mu.Lock()
	for w := range p.all {
		w.cancel()
	}
	clear(p.calls)
	p.mu.Unlock()
	p.running.Wait()
}
