package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/words"
)

// CallOptions are what a caller may add to a request; nil is the zero value.
type CallOptions struct {
	// Progress is told how far the upstream is, never after the request has returned.
	// It must return soon: what else the upstream tells waits for it.
	Progress func(Progress)
	// Elicit puts a question of the upstream's to whoever made the request. Until it
	// returns, the timeout does not run. Without it questions are declined.
	Elicit func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)
	// Meta is passed on; names of the protocol's own are not.
	Meta map[string]any
	// Timeout bounds the request, default that of the upstream.
	Timeout time.Duration
}

// Progress is how far a request is.
type Progress struct {
	Progress, Total float64 // Total is 0 where it is not known
	Message         string
}

// Call calls a tool. args is a JSON object; none is an empty one.
func (m *Manager) Call(ctx context.Context, id, tool string, args json.RawMessage, o *CallOptions) (*mcp.CallToolResult, error) {
	s, err := m.session(ctx, id)
	if err != nil {
		return nil, err
	}
	if !s.catalogue.names[tool] {
		return nil, newError(KindUnknownTool, id, "has no tool %s", words.Quote(tool))
	}
	if args = bytes.TrimSpace(args); len(args) == 0 {
		args = json.RawMessage("{}")
	}
	switch {
	case len(args) > m.opts.MaxMessage:
		return nil, newError(KindTooLarge, id, "takes no arguments of more than %d bytes", m.opts.MaxMessage)
	case args[0] != '{' || !json.Valid(args):
		return nil, newError(KindInvalid, id, "takes arguments that are a JSON object, and these are none")
	}
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	return runRequest(ctx, s.session, "the tool "+words.Clip(tool), o, func(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
		return runRounds(ctx, c, func(r round) (*mcp.CallToolResult, round, error) {
			p := *params
			p.Meta, p.InputResponses, p.RequestState = c.meta(), r.answers, r.state
			res, err := s.client.CallTool(ctx, &p)
			if err != nil {
				return nil, round{}, err
			}
			return res, round{needsInput: res.NeedsInput(), questions: res.InputRequests, state: res.RequestState}, nil
		})
	})
}

// ReadResource reads a resource.
func (m *Manager) ReadResource(ctx context.Context, id, uri string, o *CallOptions) (*mcp.ReadResourceResult, error) {
	s, err := m.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return runRequest(ctx, s.session, "the resource "+words.Quote(uri), o, func(ctx context.Context, c *call) (*mcp.ReadResourceResult, error) {
		return runRounds(ctx, c, func(r round) (*mcp.ReadResourceResult, round, error) {
			p := &mcp.ReadResourceParams{Meta: c.meta(), URI: uri, InputResponses: r.answers, RequestState: r.state}
			res, err := s.client.ReadResource(ctx, p)
			if err != nil {
				return nil, round{}, err
			}
			return res, round{needsInput: res.NeedsInput(), questions: res.InputRequests, state: res.RequestState}, nil
		})
	})
}

// GetPrompt renders a prompt.
func (m *Manager) GetPrompt(ctx context.Context, id, name string, args map[string]string, o *CallOptions) (*mcp.GetPromptResult, error) {
	s, err := m.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return runRequest(ctx, s.session, "the prompt "+words.Quote(name), o, func(ctx context.Context, c *call) (*mcp.GetPromptResult, error) {
		return runRounds(ctx, c, func(r round) (*mcp.GetPromptResult, round, error) {
			p := &mcp.GetPromptParams{Meta: c.meta(), Name: name, Arguments: args, InputResponses: r.answers, RequestState: r.state}
			res, err := s.client.GetPrompt(ctx, p)
			if err != nil {
				return nil, round{}, err
			}
			return res, round{needsInput: res.NeedsInput(), questions: res.InputRequests, state: res.RequestState}, nil
		})
	})
}

// Complete completes an argument of a prompt or of a resource template.
func (m *Manager) Complete(ctx context.Context, id string, params *mcp.CompleteParams, o *CallOptions) (*mcp.CompleteResult, error) {
	s, err := m.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return runRequest(ctx, s.session, "a completion", o, func(ctx context.Context, c *call) (*mcp.CompleteResult, error) {
		p := *params
		p.Meta = c.meta()
		return s.client.Complete(ctx, &p)
	})
}

// runRequest runs one request within its time and makes an *Error of what goes wrong.
func runRequest[T any](ctx context.Context, s *session, what string, o *CallOptions, send func(context.Context, *call) (T, error)) (T, error) {
	var none T
	c, runs, err := s.begin(ctx, o)
	if err != nil {
		return none, err
	}
	out, err := guard(func() (T, error) { return send(runs, c) })
	c.finish(err == nil && s.http != nil)
	if err != nil {
		return none, s.failure(ctx, c, what, err)
	}
	return out, nil
}

// failure says why a request failed.
func (s *session) failure(ctx context.Context, c *call, what string, err error) *Error {
	id := s.launch.ID
	var rpc *jsonrpc.Error
	var transport *url.Error
	hidden := s.launch.secrets.mask
	errors.As(err, &rpc)
	switch {
	case errors.Is(err, errPanic):
		return newError(KindProtocol, id, "answered %s with something that cannot be read", what).withCause(err)
	case rpc != nil && rpc.Code == codeTooLarge:
		return newError(KindTooLarge, id, "answered %s with more than %d bytes", what, s.opts.MaxMessage)
	case c.hasExpired():
		s.requestCheck()
		return newError(KindTimeout, id, "did not answer %s within %s", what, c.timeout).withCause(context.DeadlineExceeded)
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return newError(KindTimeout, id, "did not answer %s in the time of its caller", what).withCause(ctx.Err())
	case ctx.Err() != nil:
		return newError(KindCancelled, id, "was told that %s is not wanted any more", what).withCause(ctx.Err())
	case s.hasEnded():
		return newError(KindDown, id, "ended before it answered %s", what).withCause(err)
	case errors.As(err, &transport), rpc != nil && rpc.Code == codeRejected:
		s.requestCheck()
		return newError(KindDown, id, "cannot be reached for %s: %s", what, hidden(err.Error())).withCause(err)
	case rpc != nil:
		e := newError(KindProtocol, id, "refused %s: %s (%d)", what, hidden(words.ClipTo(rpc.Message, maxLine)), rpc.Code)
		e.RPC = rpc
		return e
	case errors.Is(err, mcp.ErrConnectionClosed): // which it is not: see foreign
		return newError(KindProtocol, id, "refused %s", what).withCause(err)
	}
	return newError(KindProtocol, id, "answered %s with something that is not understood: %s", what, hidden(words.ClipTo(err.Error(), maxLine)))
}

// requestCheck has the session looked at, which may have ended without being told.
func (s *session) requestCheck() {
	select {
	case s.checkRequested <- struct{}{}:
	default:
	}
}

// hasEnded reports whether the session has ended. The end of the connection is seen a moment
// after the requests on it failed.
func (s *session) hasEnded() bool {
	if s.life.Err() != nil {
		return true
	}
	if s.stdio != nil {
		select {
		case <-s.stdio.ended:
			return true
		default:
		}
	}
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// forwardableMeta returns meta without the names of the protocol's own.
func forwardableMeta(meta map[string]any) mcp.Meta {
	out := maps.Clone(meta)
	maps.DeleteFunc(out, func(name string, _ any) bool {
		return name == "progressToken" || strings.HasPrefix(name, "io.modelcontextprotocol/")
	})
	if out == nil {
		out = map[string]any{}
	}
	return out
}

// calls are the requests that run in a session.
type calls struct {
	mu            sync.Mutex
	last          int
	running       map[string]*call // by progress token
	openQuestions int              // questions that are being put
}

// call is one of them.
type call struct {
	CallOptions
	session *session
	token   string
	timeout time.Duration
	cancel  context.CancelFunc
	stop    []func() bool // what would cancel it

	mu        sync.Mutex
	timer     *time.Timer
	remaining time.Duration // while the clock stands
	startedAt time.Time     // of the clock
	paused    int
	expired   bool
	done      bool
}

// begin registers a request. runs is its context: it ends with ctx, with the session and
// when the time is over, but not when the request has returned, since a connection must
// be read to its end to be of use again.
func (s *session) begin(ctx context.Context, o *CallOptions) (c *call, runs context.Context, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, newError(KindCancelled, s.launch.ID, "was not asked: the caller has gone").withCause(err)
	}
	c = &call{session: s, timeout: s.launch.timeout()}
	if o != nil {
		c.CallOptions = *o
		c.timeout = defaultDuration(o.Timeout, c.timeout)
	}
	if !s.calls.add(c) {
		return nil, nil, newError(KindBusy, s.launch.ID, "has %d requests running", MaxCalls)
	}
	runs, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	c.stop = []func() bool{context.AfterFunc(ctx, c.cancel), context.AfterFunc(s.life, c.cancel)}
	c.remaining = c.timeout
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startTimer()
	return c, runs, nil
}

func (t *calls) add(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.running) >= MaxCalls {
		return false
	}
	if t.running == nil {
		t.running = map[string]*call{}
	}
	t.last++
	c.token = "c" + strconv.Itoa(t.last)
	t.running[c.token] = c
	return true
}

// startTimer lets the clock run; c.mu is held.
func (c *call) startTimer() {
	c.startedAt = time.Now()
	c.timer = time.AfterFunc(c.remaining, c.expire)
}

func (c *call) expire() {
	c.mu.Lock()
	expired := c.paused == 0 && !c.done
	c.expired = c.expired || expired
	c.mu.Unlock()
	if expired {
		c.cancel()
	}
}

// pause stops the clock until resume is called.
func (c *call) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused == 1 {
		c.timer.Stop()
		c.remaining = max(c.remaining-time.Since(c.startedAt), time.Second)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.paused--; c.paused == 0 && !c.done {
			c.startTimer()
		}
	}
}

func (c *call) hasExpired() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.expired
}

// finish ends the call. lingers leaves its context a while longer.
func (c *call) finish(lingers bool) {
	t := &c.session.calls
	t.mu.Lock()
	delete(t.running, c.token)
	t.mu.Unlock()
	c.mu.Lock()
	c.done = true
	c.timer.Stop()
	c.mu.Unlock()
	for _, stop := range c.stop {
		stop()
	}
	if lingers {
		time.AfterFunc(drainTimeout, c.cancel)
	} else {
		c.cancel()
	}
}

// meta is what goes along with each round of the request.
func (c *call) meta() mcp.Meta {
	meta := forwardableMeta(c.Meta)
	if c.Progress != nil {
		meta["progressToken"] = c.token
	}
	return meta
}
