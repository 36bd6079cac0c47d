package mcp

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/tools"
)

const (
	// maxSuspended limits the suspended calls, suspendTimeout their duration.
	maxSuspended   = 1000
	suspendTimeout = 5 * time.Minute
	// maxSuspendedPerToken limits the suspended calls of one token.
	maxSuspendedPerToken = 100
	// questionName is the name of the question in the input request and of the reply to it.
	questionName = "question"
)

// suspendedCalls has the calls that wait for input of their client. A client of the stateless
// version gets the question as the result of its call and replies with its next call; the call to
// the upstream continues in between (MCP 2026-07-28, multi round-trip requests).
type suspendedCalls struct {
	clock    func() time.Time
	limit    *background.Limiter[string] // by token
	running  sync.WaitGroup              // running calls
	stopping context.Context
	cancel   context.CancelFunc // ends stopping

	mu    sync.Mutex
	calls map[string]*suspendedCall
}

type suspendedCall struct {
	tokenID, name string
	since         time.Time
	release       func() // frees its slot of the limit
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
	p := &suspendedCalls{clock: clock, limit: background.NewLimiter[string](maxSuspended, maxSuspendedPerToken), calls: map[string]*suspendedCall{}}
	p.stopping, p.cancel = context.WithCancel(context.Background())
	return p
}

// askFunc asks the client of a call a question.
type askFunc = func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)

// run starts a call and waits like next.
func (p *suspendedCalls) run(ctx context.Context, tokenID, name string, fn func(context.Context, askFunc) (*mcp.CallToolResult, error)) (*mcp.CallToolResult, error) {
	w := &suspendedCall{
		tokenID: tokenID, name: name, since: p.clock(),
		question: make(chan *mcp.ElicitParams), answer: make(chan *mcp.ElicitResult), done: make(chan callOutcome, 1),
	}
	// The first request ends when the client gets the question, and the call continues.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	p.running.Go(func() {
		defer cancel()
		defer context.AfterFunc(p.stopping, cancel)()
		res, err := fn(inner, w.ask)
		w.done <- callOutcome{res, err}
	})
	return p.next(ctx, w)
}

func (w *suspendedCall) ask(ctx context.Context, q *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	late := time.After(suspendTimeout)
	select {
	case w.question <- q:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late:
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}
	select {
	case a := <-w.answer:
		return a, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-late:
		return &mcp.ElicitResult{Action: "cancel"}, nil
	}
}

// next waits until the call ends or asks a question. The result then contains the state for the reply.
func (p *suspendedCalls) next(ctx context.Context, w *suspendedCall) (res *mcp.CallToolResult, err error) {
	select {
	case out := <-w.done:
		return out.res, out.err
	case q := <-w.question:
		state, ok := p.suspend(w)
		if !ok {
			w.cancel()
			return nil, tools.NewError(errs.UpstreamFailed, "MCP_SERVER_ERROR", "too many calls wait for replies of their clients; try again later")
		}
		return &mcp.CallToolResult{Content: []mcp.Content{}, InputRequests: mcp.InputRequestMap{questionName: q}, RequestState: state}, nil
	case <-ctx.Done():
		w.cancel()
		return nil, ctx.Err()
	}
}

// suspend stores a call until its reply arrives, and cancels calls that have waited too long.
func (p *suspendedCalls) suspend(w *suspendedCall) (state string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for key, old := range p.calls {
		if now.Sub(old.since) > suspendTimeout {
			old.cancel()
			old.release()
			delete(p.calls, key)
		}
	}
	release, err := p.limit.Acquire(w.tokenID)
	if err != nil {
		return "", false
	}
	state, w.since, w.release = rand.Text(), now, release
	p.calls[state] = w
	return state, true
}

// resume continues a call with the reply of its client, which needs the call's token and tool.
func (p *suspendedCalls) resume(ctx context.Context, tokenID, name, state string, answers mcp.InputResponseMap) (*mcp.CallToolResult, error) {
	p.mu.Lock()
	w := p.calls[state]
	if w != nil && (w.tokenID != tokenID || w.name != name) {
		w = nil
	}
	if w != nil {
		w.release()
		delete(p.calls, state)
	}
	p.mu.Unlock()
	if w == nil {
		return nil, tools.NewError(errs.InvalidRequest, "INVALID_ARGUMENTS", "no call waits for this reply: it has its reply, has waited longer than %s, or runs on another replica; call the tool again", suspendTimeout)
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

// stop cancels all calls and waits for their end.
func (p *suspendedCalls) stop() {
	p.cancel()
	p.running.Wait()
}
