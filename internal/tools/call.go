package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/upstream"
	"comet/internal/usage"
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

// Call calls a tool by any of its names. args is a JSON object or empty. The error is an
// *errs.Error with a name where the tool was not reached or did not return a result; a cancelled
// context returns its own error.
func (svc *Service) Call(ctx context.Context, by Caller, name string, args json.RawMessage, opts *CallOptions) (*mcp.CallToolResult, error) {
	c := &Invocation{at: svc.opts.Clock(), Caller: by, Arguments: args}
	if opts != nil {
		c.Options = *opts
	}
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return nil, toCallError(err)
	}
	id, err := uuid.NewV7()
	if err != nil {
		return nil, toCallError(err)
	}
	c.ID = id.String()
	res, err := svc.execute(ctx, c, name)
	if ctx.Err() != nil && err != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		failed := toCallError(err)
		if failed.Code == errs.Internal {
			svc.log.Error("a tool call failed", "call", c.ID, "tool", clip(name), "error", err)
		}
		return nil, failed
	}
	return res, nil
}

// execute takes a call through all steps.
func (svc *Service) execute(ctx context.Context, c *Invocation, name string) (*mcp.CallToolResult, error) {
	err := svc.resolve(ctx, c, name)
	if err != nil {
		return nil, svc.recordRefusal(c, name, err)
	}
	reserved := estimateTokens(len(c.Arguments))
	var hold *usage.Hold
	if c.Caller.Source != SourceTask { // a task is charged when it completes
		if hold, err = svc.auditLog.prepaid.Hold(ctx, c.Caller.payer(), reserved); err != nil {
			return nil, svc.recordRefusal(c, name, err)
		}
	}
	res, err := withRecovery(svc, c, func() (*mcp.CallToolResult, error) {
		if c.tool.IsBuiltin() {
			return c.tool.builtin.Execute(ctx, c)
		}
		return svc.forward(ctx, c)
	})
	text := textOf(c.Arguments, res)
	if hold != nil {
		hold.Estimate(reserved + text.estimate)
	}
	svc.finish(c, callRecord{ToolCall: svc.auditRecord(c, res, err), texts: text.texts, hold: hold})
	return res, err
}

// withRecovery executes a call and turns a panic into an error, so that the reservation is
// released.
func withRecovery[T any](svc *Service, c *Invocation, do func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			svc.log.Error("a tool call panicked", "call", c.ID, "tool", c.tool.ID, "panic", p, "stack", string(debug.Stack()))
			err = errs.New(errs.Internal, "panic: %v", p)
		}
	}()
	return do()
}

// resolve finds the tool and checks whether the caller may call it with these arguments.
func (svc *Service) resolve(ctx context.Context, c *Invocation, name string) (err error) {
	if c.policy, err = svc.policies.get(ctx, c.Caller.Principal.TokenID); err != nil {
		return err
	}
	if c.Arguments, err = argumentObject(c.Arguments); err != nil {
		return err
	}
	c.catalogue = svc.catalogue.Load()
	t := c.catalogue.find(name)
	if t == nil {
		return svc.missingTool(c, name)
	}
	c.tool = t
	switch {
	case !t.allowedBy(c.policy):
		return svc.toolNotFound(name)
	case t.quarantined:
		return NewError(errs.NotFound, "TOOL_NOT_FOUND", "the definition of %s has changed and needs approval: see comet upstreams tools %s", clip(t.ID), t.Server)
	case t.IsBuiltin() && t.builtin.Scope != "" && !c.Caller.Principal.Has(t.builtin.Scope):
		return auth.Require(c.Caller.Principal, t.builtin.Scope)
	case !c.policy.allowsArguments(t, c.Arguments):
		return errs.New(errs.ToolDenied, "the token %q may not call %s with these arguments", c.Caller.Principal.Name, t.ID)
	}
	return nil
}

// missingTool returns the error for an unknown tool; its server may be unavailable.
func (svc *Service) missingTool(c *Invocation, name string) error {
	server, bare, ok := splitID(name)
	if !ok {
		server, bare, ok = splitListed(name)
	}
	if !ok || !c.policy.allowsTool(server, bare, models.ToolRead) {
		return svc.toolNotFound(name)
	}
	s, known := svc.status(server)
	if !known || s.State == upstream.Ready {
		return svc.toolNotFound(name)
	}
	return errs.New(errs.UpstreamFailed, "the MCP server %q is %s: %s", server, s.State, cmp.Or(s.Error, "it has not started yet"))
}

// toolNotFound is the error for a tool that does not exist or is hidden from the caller.
func (svc *Service) toolNotFound(name string) error {
	return NewError(errs.NotFound, "TOOL_NOT_FOUND", "there is no tool %q; find one with %s", clip(name), svc.finder)
}

// argumentObject checks that arguments are an object and returns an empty one for none.
func argumentObject(args json.RawMessage) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(args)
	switch {
	case len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")):
		return json.RawMessage("{}"), nil
	case trimmed[0] != '{':
		return nil, errs.New(errs.InvalidRequest, "arguments must be a JSON object, not %s", clip(string(trimmed)))
	}
	return trimmed, nil
}

// forward calls the tool of an upstream.
func (svc *Service) forward(ctx context.Context, c *Invocation) (*mcp.CallToolResult, error) {
	res, err := svc.upstreams.Call(ctx, c.tool.Server, c.tool.Name, c.Arguments, &upstream.CallOptions{
		Progress: c.Options.Progress, Elicit: c.Options.Elicit, Timeout: c.Options.Timeout,
	})
	if err != nil {
		return nil, svc.upstreamError(c.tool.ID, err)
	}
	return withoutServerInfo(res), nil
}

// upstreamError returns the error of an upstream as a caller sees it.
func (svc *Service) upstreamError(id string, err error) error {
	switch {
	case errs.Is(err, errs.NotFound):
		return svc.toolNotFound(id)
	case errors.Is(err, context.Canceled):
		return context.Canceled
	}
	return err
}
