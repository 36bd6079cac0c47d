package upstream

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"strings"
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
		return nil, fail(KindUnknownTool, id, "has no tool %s", words.Quote(tool))
	}
	if args = bytes.TrimSpace(args); len(args) == 0 {
		args = json.RawMessage("{}")
	}
	switch {
	case len(args) > m.opts.MaxMessage:
		return nil, fail(KindTooLarge, id, "takes no arguments of more than %d bytes", m.opts.MaxMessage)
	case args[0] != '{' || !json.Valid(args):
		return nil, fail(KindInvalid, id, "takes arguments that are a JSON object, and these are none")
	}
	params := &mcp.CallToolParams{Name: tool, Arguments: args}
	return ask(ctx, s.session, "the tool "+words.Clip(tool), o, func(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
		return rounds(ctx, c, func(r round) (*mcp.CallToolResult, round, error) {
			p := *params
			p.Meta, p.InputResponses, p.RequestState = c.meta(), r.answers, r.state
			res, err := s.client.CallTool(ctx, &p)
			if err != nil {
				return nil, round{}, err
			}
			return res, round{needed: res.NeedsInput(), questions: res.InputRequests, state: res.RequestState}, nil
		})
	})
}

// ReadResource reads a resource.
func (m *Manager) ReadResource(ctx context.Context, id, uri string, o *CallOptions) (*mcp.ReadResourceResult, error) {
	s, err := m.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return ask(ctx, s.session, "the resource "+words.Quote(uri), o, func(ctx context.Context, c *call) (*mcp.ReadResourceResult, error) {
		return rounds(ctx, c, func(r round) (*mcp.ReadResourceResult, round, error) {
			p := &mcp.ReadResourceParams{Meta: c.meta(), URI: uri, InputResponses: r.answers, RequestState: r.state}
			res, err := s.client.ReadResource(ctx, p)
			if err != nil {
				return nil, round{}, err
			}
			return res, round{needed: res.NeedsInput(), questions: res.InputRequests, state: res.RequestState}, nil
		})
	})
}

// GetPrompt renders a prompt.
func (m *Manager) GetPrompt(ctx context.Context, id, name string, args map[string]string, o *CallOptions) (*mcp.GetPromptResult, error) {
	s, err := m.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return ask(ctx, s.session, "the prompt "+words.Quote(name), o, func(ctx context.Context, c *call) (*mcp.GetPromptResult, error) {
		return rounds(ctx, c, func(r round) (*mcp.GetPromptResult, round, error) {
			p := &mcp.GetPromptParams{Meta: c.meta(), Name: name, Arguments: args, InputResponses: r.answers, RequestState: r.state}
			res, err := s.client.GetPrompt(ctx, p)
			if err != nil {
				return nil, round{}, err
			}
			return res, round{needed: res.NeedsInput(), questions: res.InputRequests, state: res.RequestState}, nil
		})
	})
}

// Complete completes an argument of a prompt or of a resource template.
func (m *Manager) Complete(ctx context.Context, id string, params *mcp.CompleteParams, o *CallOptions) (*mcp.CompleteResult, error) {
	s, err := m.session(ctx, id)
	if err != nil {
		return nil, err
	}
	return ask(ctx, s.session, "a completion", o, func(ctx context.Context, c *call) (*mcp.CompleteResult, error) {
		p := *params
		p.Meta = c.meta()
		return s.client.Complete(ctx, &p)
	})
}

// ask runs one request within its time and makes an *Error of what goes wrong.
func ask[T any](ctx context.Context, s *session, what string, o *CallOptions, send func(context.Context, *call) (T, error)) (T, error) {
	var none T
	c, runs, err := s.begin(ctx, o)
	if err != nil {
		return none, err
	}
	out, err := guard(func() (T, error) { return send(runs, c) })
	c.finish(err == nil && s.web != nil)
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
	hidden := s.launch.secrets.hide
	errors.As(err, &rpc)
	switch {
	case errors.Is(err, errPanic):
		return fail(KindProtocol, id, "answered %s with something that cannot be read", what).because(err)
	case rpc != nil && rpc.Code == codeTooLarge:
		return fail(KindTooLarge, id, "answered %s with more than %d bytes", what, s.opts.MaxMessage)
	case c.late():
		s.doubt()
		return fail(KindTimeout, id, "did not answer %s within %s", what, c.timeout).because(context.DeadlineExceeded)
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fail(KindTimeout, id, "did not answer %s in the time of its caller", what).because(ctx.Err())
	case ctx.Err() != nil:
		return fail(KindCancelled, id, "was told that %s is not wanted any more", what).because(ctx.Err())
	case s.over():
		return fail(KindDown, id, "ended before it answered %s", what).because(err)
	case errors.As(err, &transport), rpc != nil && rpc.Code == codeRejected:
		s.doubt()
		return fail(KindDown, id, "cannot be reached for %s: %s", what, hidden(err.Error())).because(err)
	case rpc != nil:
		e := fail(KindProtocol, id, "refused %s: %s (%d)", what, hidden(words.ClipTo(rpc.Message, maxLine)), rpc.Code)
		e.RPC = rpc
		return e
	case errors.Is(err, mcp.ErrConnectionClosed): // which it is not: see foreign
		return fail(KindProtocol, id, "refused %s", what).because(err)
	}
	return fail(KindProtocol, id, "answered %s with something that is not understood: %s", what, hidden(words.ClipTo(err.Error(), maxLine)))
}

// doubt has the session looked at, which may have ended without being told.
func (s *session) doubt() {
	select {
	case s.suspect <- struct{}{}:
	default:
	}
}

// over reports whether the session has ended. The end of the connection is seen a moment
// after the requests on it failed.
func (s *session) over() bool {
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

// passable returns meta without the names of the protocol's own.
func passable(meta map[string]any) mcp.Meta {
	out := maps.Clone(meta)
	maps.DeleteFunc(out, func(name string, _ any) bool {
		return name == "progressToken" || strings.HasPrefix(name, "io.modelcontextprotocol/")
	})
	if out == nil {
		out = map[string]any{}
	}
	return out
}
