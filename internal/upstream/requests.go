package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/internal/input"
)

// reservedMeta is the prefix of the names in _meta that the protocol defines.
const reservedMeta = "io.modelcontextprotocol/"

// metaCall is the member of _meta that names the call of a question.
const metaCall = "comet/call"

// CallOptions are optional parameters of a request; nil is the zero value.
type CallOptions struct {
	// Progress receives the progress of the request, never after the request has returned. It must
	// return quickly, because further messages of the upstream wait for it.
	Progress func(Progress)
	// Log receives the log messages of the request, under the same conditions.
	Log func(*mcp.LoggingMessageParams) //nolint:staticcheck // revision 2025-11-25 has it
	// Can are the kinds of questions that the caller answers, and Ask passes questions of these kinds to
	// it and returns the answers by the names of the questions. The timeout is paused until Ask returns;
	// its context ends after AskTimeout.
	Can Capabilities
	Ask func(context.Context, mcp.InputRequestMap) (mcp.InputResponseMap, error)
	// Meta is the _meta of the caller's request. It is passed on without what concerns the caller's
	// own connection.
	Meta mcp.Meta
	// Timeout limits the request, default the timeout of the upstream.
	Timeout time.Duration
	// Workflow is called with the id of a workflow before the call waits for it; nil ignores it.
	Workflow func(id string)
	// AsTask says that the caller does not wait for a slow call, so it may last as long as its work.
	AsTask bool
}

// Capabilities are the kinds of questions that a caller answers.
type Capabilities struct {
	Elicitation *mcp.ElicitationCapabilities `json:"elicitation,omitempty"`
	Sampling    *mcp.SamplingCapabilities    `json:"sampling,omitempty"` //nolint:staticcheck // clients of all revisions have it
	Roots       *mcp.RootCapabilities        `json:"roots,omitempty"`    //nolint:staticcheck // clients of all revisions have it
}

// Forms reports whether the caller fills in forms.
func (c Capabilities) Forms() bool {
	return c.Elicitation != nil && (c.Elicitation.Form != nil || c.Elicitation.URL == nil)
}

// Progress is the progress of a request.
type Progress struct {
	Progress, Total float64 // Total is 0 if it is unknown
	Message         string
}

// Call calls a tool. args is a JSON object; empty args mean an empty object. The error of this and of
// the other requests is an *errs.Error: errs.NotFound for an unknown upstream or tool,
// errs.InvalidRequest, or errs.UpstreamFailed with a reason.
func (m *Manager) Call(ctx context.Context, id, tool string, args json.RawMessage, o *CallOptions) (*Result, error) {
	s, err := m.readySession(ctx, id)
	if err != nil {
		return nil, err
	}
	if _, known := s.catalogue.Load().names[tool]; !known {
		return nil, newError(errs.NotFound, id, "has no tool %s", input.Quote(tool))
	}
	if args = bytes.TrimSpace(args); len(args) == 0 {
		args = json.RawMessage("{}")
	}
	switch {
	case len(args) > m.opts.MaxMessage:
		return nil, failure(ReasonTooLarge, id, "accepts arguments of at most %d bytes", m.opts.MaxMessage)
	case args[0] != '{' || !json.Valid(args):
		return nil, newError(errs.InvalidRequest, id, "requires arguments that are a JSON object")
	}
	return runRounds(ctx, s, "the tool "+input.Clip(tool), o, func(ctx context.Context, r round) (*Result, error) {
		return s.callTool(ctx, tool, args, r)
	})
}

// ReadResource reads a resource.
func (m *Manager) ReadResource(ctx context.Context, id, uri string, o *CallOptions) (*mcp.ReadResourceResult, error) {
	s, err := m.readySession(ctx, id)
	if err != nil {
		return nil, err
	}
	return runRounds(ctx, s, "the resource "+input.Quote(uri), o, func(ctx context.Context, r round) (*mcp.ReadResourceResult, error) {
		return s.client.ReadResource(ctx, &mcp.ReadResourceParams{
			Meta: r.meta, URI: uri, InputResponses: r.answers, RequestState: r.state,
		})
	})
}

// GetPrompt renders a prompt.
func (m *Manager) GetPrompt(ctx context.Context, id, name string, args map[string]string, o *CallOptions) (*mcp.GetPromptResult, error) {
	s, err := m.readySession(ctx, id)
	if err != nil {
		return nil, err
	}
	return runRounds(ctx, s, "the prompt "+input.Quote(name), o, func(ctx context.Context, r round) (*mcp.GetPromptResult, error) {
		return s.client.GetPrompt(ctx, &mcp.GetPromptParams{
			Meta: r.meta, Name: name, Arguments: args, InputResponses: r.answers, RequestState: r.state,
		})
	})
}

// Complete completes an argument of a prompt or of a resource template.
func (m *Manager) Complete(ctx context.Context, id string, params *mcp.CompleteParams) (*mcp.CompleteResult, error) {
	s, err := m.readySession(ctx, id)
	if err != nil {
		return nil, err
	}
	return runRequest(ctx, s, "a completion", nil, func(ctx context.Context, c *call) (*mcp.CompleteResult, error) {
		p := *params
		p.Meta = c.meta()
		return s.client.Complete(ctx, &p)
	})
}

// runRequest runs one request within its timeout and converts its error.
func runRequest[T any](ctx context.Context, s *session, what string, o *CallOptions, send func(context.Context, *call) (T, error)) (T, error) {
	var none T
	c, runs, err := s.begin(ctx, o)
	if err != nil {
		return none, err
	}
	out, err := guard(func() (T, error) { return send(runs, c) })
	c.finish(err == nil && s.http != nil && !c.read, runs.Err() == nil)
	if err != nil {
		return none, markLost(s.describeFailure(ctx, c, what, err), err)
	}
	return out, nil
}

func (s *session) describeFailure(ctx context.Context, c *call, what string, err error) error {
	id := s.launch.ID
	var rpc *jsonrpc.Error
	var transport *url.Error
	hidden := s.launch.secrets.mask
	errors.As(err, &rpc)
	switch {
	case errors.Is(err, errNoReply):
		return failure(ReasonTimeout, id, "asked a question for %s: %v", what, errNoReply)
	case errors.Is(err, errPanic):
		return failure(ReasonProtocol, id, "returned an unreadable response to %s", what)
	case rpc != nil && rpc.Code == codeTooLarge:
		return failure(ReasonTooLarge, id, "responded to %s with more than %d bytes", what, s.opts.MaxMessage)
	case c.expired.Load():
		s.checkRequested.Set()
		return failure(ReasonTimeout, id, "did not respond to %s within %s", what, c.timeout)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return failure(ReasonTimeout, id, "did not respond to %s before the deadline of the caller", what)
	case ctx.Err() != nil:
		return cancelled(id, "got a cancellation of %s", what)
	case s.http != nil && s.http.base.required.Load() != nil:
		return failure(ReasonDown, id, "is down: %v", s.describeEnd(err))
	case rpc != nil && c.lacking.Load() != nil && *c.lacking.Load() == rpc.Message: // not that of another request of the call
		return failure(ReasonScope, id, "refused %s: %s", what, hidden(*c.lacking.Load()))
	case s.hasEnded():
		return failure(ReasonDown, id, "ended before it responded to %s", what)
	case errors.As(err, &transport), rpc != nil && rpc.Code == codeRejected:
		s.checkRequested.Set()
		return failure(ReasonDown, id, "cannot be reached for %s: %s", what, hidden(connectionError(err).Error()))
	case rpc != nil:
		refused := failure(ReasonProtocol, id, "refused %s: %s (%d)", what, hidden(input.ClipTo(rpc.Message, maxLine)), rpc.Code).With("rpc_code", rpc.Code)
		if data := []byte(hidden(string(rpc.Data))); len(data) <= maxErrorData && json.Valid(data) {
			refused = refused.With("rpc_data", json.RawMessage(data))
		}
		return refused
	case errors.Is(err, mcp.ErrConnectionClosed): // a misread code: see remoteError
		return failure(ReasonProtocol, id, "refused %s", what)
	}
	return failure(ReasonProtocol, id, "returned an invalid response to %s: %s", what, hidden(input.ClipTo(err.Error(), maxLine)))
}

// hasEnded reports whether the session has ended. Requests notice that a moment earlier.
func (s *session) hasEnded() bool {
	var output chan struct{} // of a program
	if s.stdio != nil {
		output = s.stdio.ended
	}
	select {
	case <-s.life.Done():
	case <-s.ended:
	case <-output:
	default:
		return false
	}
	return true
}

type calls struct {
	mu         sync.Mutex
	last       int
	running    map[string]*call // by progress token
	unassigned int              // questions whose request is not known yet
	changed    chan struct{}    // closed when a request ends or gets its question
}

type call struct {
	CallOptions
	session *session
	number  int
	token   string
	timeout time.Duration
	cancel  context.CancelFunc
	stop    []func() bool // unregister the cancellations
	read    bool          // the response was read to its end
	expired atomic.Bool
	lacking atomic.Pointer[string] // why the upstream rejected it, see authorizedTransport

	// The following fields are guarded by session.calls.mu.
	questions       int  // that wait for an answer
	ended, answered bool // answered by the upstream

	mu        sync.Mutex
	timer     *time.Timer
	deadline  time.Time     // of the timer
	remaining time.Duration // while paused
	paused    int
	done      bool
}

// begin registers a request. Its context ends with ctx, the session and the timeout, but not with
// the return of the request: a connection is read to its end before it is reused.
func (s *session) begin(ctx context.Context, o *CallOptions) (c *call, runs context.Context, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, cancelled(s.launch.ID, "was not called: the caller has cancelled")
	}
	c = &call{session: s, timeout: s.launch.timeout()}
	if o != nil {
		c.CallOptions = *o
		c.timeout = cmp.Or(o.Timeout, c.timeout)
	}
	if !s.calls.add(c) {
		return nil, nil, failure(ReasonBusy, s.launch.ID, "has %d running requests, the limit", MaxCalls)
	}
	runs, c.cancel = context.WithCancel(context.WithValue(context.WithoutCancel(ctx), callKey{}, c.token))
	c.stop = []func() bool{context.AfterFunc(ctx, c.cancel), context.AfterFunc(s.life, c.cancel)}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = time.Now().Add(c.timeout)
	c.timer = time.AfterFunc(c.timeout, func() {
		c.expired.Store(true)
		c.cancel()
	})
	return c, runs, nil
}

func (t *calls) add(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.running) >= MaxCalls {
		return false
	}
	if t.running == nil {
		t.running, t.changed = map[string]*call{}, make(chan struct{})
	}
	t.last++
	c.number, c.token = t.last, "c"+strconv.Itoa(t.last)
	t.running[c.token] = c
	return true
}

// find returns the running call with a token, nil for none.
func (t *calls) find(token string) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running[token]
}

// sole returns the only running call, nil if there are several.
func (t *calls) sole() (c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.running) == 1 {
		for _, c = range t.running {
		}
	}
	return c
}

// announce wakes the questions that wait for a request to end or to get its question. The caller holds t.mu.
func (t *calls) announce() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// mark adds the call of a question to its _meta: the name of the call whose stream has the question, or
// the number of the last call for a question without a stream.
func (t *calls) mark(question *jsonrpc.Request, of string) {
	var params map[string]any
	if json.Unmarshal(question.Params, &params) != nil || params == nil {
		return
	}
	meta, _ := params["_meta"].(map[string]any)
	if meta == nil {
		meta = map[string]any{}
	}
	params["_meta"] = meta
	if of != "" {
		meta[metaCall] = of
	} else {
		t.mu.Lock()
		meta[metaCall] = t.last
		t.mu.Unlock()
	}
	question.Params, _ = json.Marshal(params) // it has just been decoded
}

// pause stops the timeout until resume is called.
func (c *call) pause() (resume func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.paused++; c.paused == 1 {
		c.timer.Stop()
		c.remaining = max(time.Until(c.deadline), time.Second)
	}
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.paused--; c.paused == 0 && !c.done {
			c.deadline = time.Now().Add(c.remaining)
			c.timer.Reset(c.remaining)
		}
	}
}

// finish ends the call, which the upstream may have answered. With lingers its context ends after
// drainTimeout, otherwise immediately.
func (c *call) finish(lingers, answered bool) {
	t := &c.session.calls
	t.mu.Lock()
	delete(t.running, c.token)
	c.ended, c.answered = true, answered
	t.announce()
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

// meta returns the _meta of each round of the request.
func (c *call) meta() mcp.Meta {
	meta := mcp.Meta{}
	for name, value := range c.Meta {
		if name != "progressToken" && !strings.HasPrefix(name, reservedMeta) {
			meta[name] = value
		}
	}
	if c.Progress != nil {
		meta["progressToken"] = c.token
	}
	if c.session.stateless() {
		can := c.Can
		if len(c.session.launch.Roots) > 0 {
			can.Roots = &mcp.RootCapabilities{} //nolint:staticcheck // see roots
		}
		meta[mcp.MetaKeyClientCapabilities] = can
		if c.Log != nil {
			meta[mcp.MetaKeyLogLevel] = "debug" //nolint:staticcheck // each caller gets those of its level
		}
	}
	return meta
}

// stateless reports whether each request carries the version and the capabilities of the client.
func (s *session) stateless() bool {
	return s.client.InitializeResult().ProtocolVersion >= statelessVersion
}
