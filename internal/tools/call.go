package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/internal/upstream"
	"comet/models"
)

// Values of Caller.Source, as the audit log records them.
const (
	SourceMCP  = "mcp"
	SourceREST = "rest"
	SourceCode = "code"
	SourceTask = "task"
)

// Caller is the client that calls a tool.
type Caller struct {
	Principal models.Principal
	Source    string
	// Session groups the calls of one client; "" groups the calls of its token.
	Session string
	// Parent is the id of the call that makes this one, and TaskID the task; "" for none.
	Parent  string
	TaskID  string
	TraceID string
	// Payer is the agent that is charged; "" for the agent of the token, or nova.
	Payer string
}

// payer returns the agent that is charged: the caller's agent, or nova for a token without one.
func (c Caller) payer() string {
	switch {
	case c.Payer != "":
		return c.Payer
	case c.Principal.AgentID != nil:
		return *c.Principal.AgentID
	}
	return models.RootAgentID
}

// CallOptions are optional features of a call; nil is the zero value.
type CallOptions struct {
	// Progress receives the progress of an upstream, from one goroutine.
	Progress func(upstream.Progress)
	// Elicit asks the client a question of an upstream; nil declines.
	Elicit func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)
	// Timeout limits the duration of the call; 0 is the timeout of the upstream's definition.
	Timeout time.Duration
}

// call is a call in progress.
type call struct {
	id   string
	at   time.Time
	by   Caller
	tool *tool
	args json.RawMessage
	opts CallOptions
	// policy is that of the caller's token.
	policy *policy
}

// Call calls a tool by any of its names. args is a JSON object or empty. The error is an *Error
// where the tool was not reached or did not return a result; a cancelled context returns its own
// error.
func (svc *Service) Call(ctx context.Context, by Caller, name string, args json.RawMessage, opts *CallOptions) (*mcp.CallToolResult, error) {
	c := &call{at: svc.opts.Clock(), by: by, args: args}
	if opts != nil {
		c.opts = *opts
	}
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return nil, toError(err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, toError(err)
	}
	c.id = id.String()
	res, err := svc.execute(ctx, c, name)
	if ctx.Err() != nil && err != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		failed := toError(err)
		if failed.Code == CodeInternal {
			svc.log.Error("a tool call failed", "call", c.id, "tool", clip(name), "error", err)
		}
		return nil, failed
	}
	return res, nil
}

// execute takes a call through all steps.
func (svc *Service) execute(ctx context.Context, c *call, name string) (*mcp.CallToolResult, error) {
	err := svc.resolve(ctx, c, name)
	if err != nil {
		return nil, svc.recordRefusal(c, name, err)
	}
	reserved := estimateTokens(len(c.args))
	var payer *prepaidAccount
	if c.by.Source != SourceTask { // a task is charged when it completes
		if payer, err = svc.prepaid.Reserve(ctx, c.by.payer(), reserved); err != nil {
			return nil, svc.recordRefusal(c, name, err)
		}
	}
	res, err := withRecovery(svc, c, func() (*mcp.CallToolResult, error) {
		if c.tool.builtin != nil {
			return c.tool.builtin(ctx, c)
		}
		return svc.forward(ctx, c)
	})
	text := textOf(c.args, res)
	estimate := reserved + text.estimate
	if payer != nil {
		payer.finishCall(reserved, estimate, svc.opts.Clock())
	}
	svc.finish(c, callRecord{ToolCall: svc.auditRecord(c, res, err), texts: text.texts, payer: payer, estimate: estimate})
	return res, err
}

// withRecovery executes a call and turns a panic into an error, so that the reservation is
// released.
func withRecovery[T any](svc *Service, c *call, do func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			svc.log.Error("a tool call panicked", "call", c.id, "tool", c.tool.id, "panic", p, "stack", string(debug.Stack()))
			err = newFailure(CodeInternal, "internal error; see the log of comet")
		}
	}()
	return do()
}

// resolve finds the tool and checks whether the caller may call it with these arguments.
func (svc *Service) resolve(ctx context.Context, c *call, name string) (err error) {
	if c.policy, err = svc.policies.get(ctx, c.by.Principal.TokenID); err != nil {
		return err
	}
	if c.args, err = argumentObject(c.args); err != nil {
		return err
	}
	t := svc.catalogue.Load().find(name)
	if t == nil {
		return svc.missingTool(c, name)
	}
	c.tool = t
	switch {
	case !c.policy.allowsTool(t.server, t.name, t.class):
		return toolNotFound(name)
	case t.quarantined:
		return newRefusal(CodeToolNotFound, "the definition of %s has changed and needs approval: see comet upstreams tools %s", clip(t.id), t.server)
	case t.scope != "" && !c.by.Principal.Has(t.scope):
		return auth.Require(c.by.Principal, t.scope)
	case !c.policy.allowsArguments(t.server, t.name, c.args):
		return newRefusal(CodePermissionDenied, "the token %q may not call %s with these arguments", c.by.Principal.Name, t.id)
	}
	return nil
}

// missingTool returns the error for an unknown tool; its server may be unavailable.
func (svc *Service) missingTool(c *call, name string) error {
	server, bare, ok := splitID(name)
	if !ok {
		server, bare, ok = splitListed(name)
	}
	if !ok || !c.policy.allowsTool(server, bare, models.ToolRead) {
		return toolNotFound(name)
	}
	s, known := svc.status(server)
	if !known || s.State == upstream.Ready {
		return toolNotFound(name)
	}
	return newRefusal(CodeServerError, "the MCP server %q is %s: %s", server, s.State, orElse(s.Error, "it has not started yet"))
}

// argumentObject checks that arguments are an object and returns an empty one for none.
func argumentObject(args json.RawMessage) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(args)
	switch {
	case len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")):
		return json.RawMessage("{}"), nil
	case trimmed[0] != '{':
		return nil, newRefusal(CodeInvalidArguments, "arguments must be a JSON object, not %s", clip(string(trimmed)))
	}
	return trimmed, nil
}

// forward calls the tool of an upstream.
func (svc *Service) forward(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	res, err := svc.upstreams.Call(ctx, c.tool.server, c.tool.name, c.args, &upstream.CallOptions{
		Progress: c.opts.Progress, Elicit: c.opts.Elicit, Timeout: c.opts.Timeout,
	})
	if err != nil {
		return nil, svc.upstreamError(c.tool.id, err)
	}
	return withoutServerInfo(res), nil
}

// upstreamError returns the error of an upstream as a caller sees it.
func (svc *Service) upstreamError(id string, err error) error {
	var e *upstream.Error
	if !errors.As(err, &e) {
		return err
	}
	switch e.Kind {
	case upstream.KindUnknownTool, upstream.KindUnknownServer:
		return toolNotFound(id)
	case upstream.KindCancelled:
		return context.Canceled
	}
	out := newFailure(CodeServerError, "%s", e.Detail)
	out.Details = map[string]any{"reason": string(e.Kind), "server": e.Server}
	if e.RPC != nil {
		out.Details["rpc_code"] = e.RPC.Code
	}
	return out
}

// withoutServerInfo copies a result of an upstream without the metadata of the upstream's
// protocol revision, which each API adds for its own client.
func withoutServerInfo(r *mcp.CallToolResult) *mcp.CallToolResult {
	return &mcp.CallToolResult{Meta: metaWithoutServerInfo(r.Meta), Content: r.Content, StructuredContent: r.StructuredContent, IsError: r.IsError}
}

// metaWithoutServerInfo copies metadata without the upstream's server info, because the server is
// comet.
func metaWithoutServerInfo(m mcp.Meta) mcp.Meta {
	m = maps.Clone(m)
	delete(m, mcp.MetaKeyServerInfo)
	return m
}
