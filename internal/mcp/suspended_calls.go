package mcp

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/background"
	"comet/internal/errs"
	"comet/internal/tools"
	"comet/internal/upstream"
)

const (
	// maxSuspended limits the suspended calls.
	maxSuspended = 1000
	// maxSuspendedPerToken limits the suspended calls of one token.
	maxSuspendedPerToken = 100
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
	questions     chan question
	open          question // of a suspended call
	done          chan callOutcome
	cancel        context.CancelFunc
	detach        func() // stop no longer cancels the call and waits for it

	// A call becomes a task when a request has waited for it longer than after, 0 for never. waits says that it becomes one
	// as soon as workflow is known, the workflow that it has started and announced on began.
	after     time.Duration
	waits     bool
	began     chan string
	workflow  string
	arguments json.RawMessage
}

// question has questions to the client of a call, by name.
type question struct {
	requests  mcp.InputRequestMap
	reply     chan mcp.InputResponseMap
	withdrawn <-chan struct{} // closed when an answer is no longer expected
}

func (q question) isWithdrawn() bool {
	select {
	case <-q.withdrawn:
		return true
	default:
		return false
	}
}

// callOutcome is the result of a call, its error, or questions for its client with the state for the reply.
type callOutcome struct {
	res       any
	err       error
	questions mcp.InputRequestMap
	state     string
	// call is the call, nil for one that cannot be suspended, and slow says that it still runs.
	call *suspendedCall
	slow bool
}

func newSuspendedCalls(clock func() time.Time) *suspendedCalls {
	p := &suspendedCalls{clock: clock, limit: background.NewLimiter[string](maxSuspended, maxSuspendedPerToken), calls: map[string]*suspendedCall{}}
	p.stopping, p.cancel = context.WithCancel(context.Background())
	return p
}

// askFunc asks the client of a call questions, by name.
type askFunc = func(context.Context, mcp.InputRequestMap) (mcp.InputResponseMap, error)

// run starts a call and waits like next.
func (p *suspendedCalls) run(ctx context.Context, r clientRequest, fn func(context.Context, askFunc) (any, error)) callOutcome {
	w := &suspendedCall{
		tokenID: r.by.Principal.TokenID, name: r.name, since: p.clock(), after: r.after, began: r.began, arguments: r.arguments,
		questions: make(chan question), done: make(chan callOutcome, 1),
	}
	// The first request ends when the client gets the question, and the call continues.
	inner, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel = cancel
	attached := context.AfterFunc(p.stopping, cancel)
	p.running.Add(1)
	w.detach = sync.OnceFunc(func() {
		attached()
		p.running.Done()
	})
	go func() {
		defer w.detach()
		defer cancel()
		res, err := fn(inner, w.ask)
		w.done <- callOutcome{res: res, err: err}
	}()
	return p.next(ctx, w)
}

func (w *suspendedCall) ask(ctx context.Context, q mcp.InputRequestMap) (answers mcp.InputResponseMap, err error) {
	reply := make(chan mcp.InputResponseMap, 1)
	select {
	case w.questions <- question{q, reply, ctx.Done()}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case answers = <-reply:
		return answers, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// next waits until the call ends, asks questions or becomes slow.
func (p *suspendedCalls) next(ctx context.Context, w *suspendedCall) callOutcome {
	var late <-chan time.Time
	if w.after > 0 {
		timer := time.NewTimer(w.after)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case out := <-w.done:
			out.call = w
			return out
		case q := <-w.questions:
			w.open = q
			state, ok := p.suspend(w)
			if !ok {
				w.cancel()
				return callOutcome{err: tools.NewError(errs.UpstreamFailed, "MCP_SERVER_ERROR", "too many calls wait for replies of their clients; try again later")}
			}
			return callOutcome{questions: q.requests, state: state}
		case w.workflow = <-w.began:
			if w.waits {
				return callOutcome{call: w, slow: true}
			}
		case <-late:
			return callOutcome{call: w, slow: true}
		case <-ctx.Done():
			w.cancel()
			return callOutcome{err: ctx.Err()}
		}
	}
}

// suspend stores a call until its reply arrives, and cancels calls that have waited too long.
func (p *suspendedCalls) suspend(w *suspendedCall) (state string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	for key, old := range p.calls {
		if now.Sub(old.since) > upstream.AskTimeout {
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

// resume continues a call with the reply of its client, which needs the call's token and name.
func (p *suspendedCalls) resume(ctx context.Context, tokenID, name, state string, answers mcp.InputResponseMap) callOutcome {
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
		return callOutcome{err: invalidParams("no call waits for this requestState: it has its reply, has waited longer than %d minutes, or runs on another replica; send the request again without it", upstream.AskTimeout/time.Minute)}
	}
	w.open.reply <- answers
	return p.next(ctx, w)
}

// stop cancels all calls and waits for their end.
func (p *suspendedCalls) stop() {
	p.cancel()
	p.running.Wait()
}
