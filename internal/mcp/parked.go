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
	// maxParked is how many calls may wait for their client's answer, parkedFor how long.
	maxParked = 1000
	parkedFor = 5 * time.Minute
	// maxParkedEach is how many of them may be one token's.
	maxParkedEach = 100
	// askName is under which name the client's answer comes.
	askName = "question"
)

// parked are the calls that wait for an answer of their client. A client of the stateless
// revision is asked by the result of its call, and answers with the next: the call to the
// upstream goes on in between (MCP 2026-07-28, multi round-trip requests).
type parked struct {
	clock func() time.Time
	runs  sync.WaitGroup // calls under way
	mu    sync.Mutex
	calls map[string]*waiting
	all   map[*waiting]bool // also those that wait for no answer
}

// waiting is one such call.
type waiting struct {
	tokenID, name string
	since         time.Time
	asked         chan *mcp.ElicitParams
	answer        chan *mcp.ElicitResult
	done          chan outcome
	cancel        context.CancelFunc
}

type outcome struct {
	res *mcp.CallToolResult
	err error
}

func newParked(clock func() time.Time) *parked {
	return &parked{clock: clock, calls: map[string]*waiting{}, all: map[*waiting]bool{}}
}

// run makes a call in the background, which may ask.
func (p *parked) run(ctx context.Context, tokenID, name string, fn func(context.Context, func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)) (*mcp.CallToolResult, error)) *waiting {
	w := &waiting{
		tokenID: tokenID, name: name, since: p.clock(),
		asked: make(chan *mcp.ElicitParams), answer: make(chan *mcp.ElicitResult), done: make(chan outcome, 1),
	}
	// The request that began it ends when the client is asked.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	p.mu.Lock()
	p.all[w] = true
	p.mu.Unlock()
	p.runs.Go(func() {
		defer cancel()
		res, err := fn(inner, w.ask)
		w.done <- outcome{res, err}
		p.forget(w)
	})
	return w
}

// forget drops a call that has ended. Whoever comes back for it within the time finds how.
func (p *parked) forget(w *waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.all, w)
}

// ask waits for the client's answer.
func (w *waiting) ask(ctx context.Context, q *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	late := time.NewTimer(parkedFor)
	defer late.Stop()
	select {
	case w.asked <- q:
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
func (p *parked) next(ctx context.Context, w *waiting) (res *mcp.CallToolResult, err error) {
	select {
	case out := <-w.done:
		return out.res, out.err
	case q := <-w.asked:
		state, ok := p.park(w)
		if !ok {
			w.cancel()
			return nil, refused(tools.CodeServerError, "too many calls wait for their clients' answers; try again later")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{}, InputRequests: mcp.InputRequestMap{askName: q}, RequestState: state}, nil
	case <-ctx.Done():
		w.cancel()
		return nil, ctx.Err()
	}
}

// park keeps a call until its answer comes. Those that have waited too long are given up.
func (p *parked) park(w *waiting) (state string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now, own := p.clock(), 0
	for key, old := range p.calls {
		switch {
		case now.Sub(old.since) > parkedFor:
			old.cancel()
			delete(p.calls, key)
		case old.tokenID == w.tokenID:
			own++
		}
	}
	if len(p.calls) >= maxParked || own >= maxParkedEach {
		return "", false
	}
	state, w.since = rand.Text(), now
	p.calls[state] = w
	return state, true
}

// resume takes up a call with its client's answer. The call is the token's own, and of the
// same tool.
func (p *parked) resume(ctx context.Context, tokenID, name, state string, answers mcp.InputResponseMap) (*mcp.CallToolResult, error) {
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
		return nil, refused(tools.CodeInvalidArguments, "no call waits for this answer: it was answered, or has waited longer than %s, or another replica made it; call the tool again", parkedFor)
	}
	answer, ok := answers[askName].(*mcp.ElicitResult)
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
func (p *parked) stop() {
	p.mu.Lock()
	for w := range p.all {
		w.cancel()
	}
	clear(p.calls)
	p.mu.Unlock()
	p.runs.Wait()
}
