package tools

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"runtime/debug"
	"time"

	"github.com/google/uuid"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/internal/upstream"
	"comet/models"
)

// The doors a call comes in by, as the audit trail names them.
const (
	ViaMCP  = "mcp"
	ViaREST = "rest"
	ViaCode = "code"
	ViaTask = "task"
)

// Caller is on whose behalf a tool is called.
type Caller struct {
	Principal models.Principal
	Via       string
	// Session is what the calls of one client have in common, "" for its token.
	Session string
	// Parent is the call that this one is made by, TaskID the task; "" for none.
	Parent  string
	TaskID  string
	TraceID string
	// Payer is the agent that pays, "" for the one the token is bound to, or nova.
	Payer string
}

// payer is the agent that is charged (decisions: “Who pays”): a call charges the caller's
// agent, a token without one charges nova.
func (c Caller) payer() string {
	switch {
	case c.Payer != "":
		return c.Payer
	case c.Principal.AgentID != nil:
		return *c.Principal.AgentID
	}
	return models.RootAgentID
}

// CallOptions are what a door adds to a call; nil is nothing.
type CallOptions struct {
	// Progress hears how far an upstream has come, from one goroutine.
	Progress func(upstream.Progress)
	// Elicit asks the client what an upstream wants to know; nil declines.
	Elicit func(context.Context, *mcp.ElicitParams) (*mcp.ElicitResult, error)
	// Timeout is how long it may take, at most; 0 is what the upstream's definition says.
	Timeout time.Duration
}

// call is one call under way.
type call struct {
	id   string
	at   time.Time
	by   Caller
	tool *tool
	args json.RawMessage
	opts CallOptions
	// policy is what the caller may do.
	policy *policy
}

// Call calls a tool by any of its names with arguments, a JSON object or nothing. What went
// wrong before the tool could say so itself is a *Error; only a caller that is gone gets
// another error.
func (h *Service) Call(ctx context.Context, by Caller, name string, args json.RawMessage, opts *CallOptions) (*mcp.CallToolResult, error) {
	c := &call{at: h.opts.Clock(), by: by, args: args}
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
	res, err := h.execute(ctx, c, name)
	if ctx.Err() != nil && err != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		failed := toError(err)
		if failed.Code == CodeInternal {
			h.log.Error("a call of a tool failed", "call", c.id, "tool", clip(name), "error", err)
		}
		return nil, failed
	}
	return res, nil
}

// execute takes a call the one way that all go.
func (h *Service) execute(ctx context.Context, c *call, name string) (*mcp.CallToolResult, error) {
	err := h.resolve(ctx, c, name)
	if err != nil {
		return nil, h.recordRefusal(c, name, err)
	}
	promised := estimateTokens(len(c.args))
	var payer *prepaidAccount
	if c.by.Via != ViaTask { // what a task costs is settled with it
		if payer, err = h.prepaid.Reserve(ctx, c.by.payer(), promised); err != nil {
			return nil, h.recordRefusal(c, name, err)
		}
	}
	res, err := withRecovery(h, c, func() (*mcp.CallToolResult, error) {
		if c.tool.builtin != nil {
			return c.tool.builtin(ctx, c)
		}
		return h.forward(ctx, c)
	})
	said := textOf(c.args, res)
	charged := promised + said.estimate
	if payer != nil {
		payer.finishCall(promised, charged, h.opts.Clock())
	}
	h.finish(c, callRecord{ToolCall: h.auditRecord(c, res, err), texts: said.texts, payer: payer, estimate: charged})
	return res, err
}

// withRecovery does the work of a call, and makes an error of a panic: one call's mistake ends
// neither comet nor what the call was promised.
func withRecovery[T any](h *Service, c *call, do func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			h.log.Error("a call of a tool panicked", "call", c.id, "tool", c.tool.id, "panic", p, "stack", string(debug.Stack()))
			err = newFailure(CodeInternal, "comet failed; its log says why")
		}
	}()
	return do()
}

// resolve finds the tool and asks whether the caller may call it so.
func (h *Service) resolve(ctx context.Context, c *call, name string) (err error) {
	if c.policy, err = h.policies.get(ctx, c.by.Principal.TokenID); err != nil {
		return err
	}
	if c.args, err = argumentObject(c.args); err != nil {
		return err
	}
	t := h.catalogue.Load().find(name)
	if t == nil {
		return h.missingTool(c, name)
	}
	c.tool = t
	switch {
	case !c.policy.allowsTool(t.server, t.name, t.class):
		return toolNotFound(name)
	case t.quarantined:
		return newRefusal(CodeToolNotFound, "the definition of %s has changed and waits for approval: see comet upstreams tools %s", clip(t.id), t.server)
	case t.scope != "" && !c.by.Principal.Has(t.scope):
		return auth.Require(c.by.Principal, t.scope)
	case !c.policy.allowsArguments(t.server, t.name, c.args):
		return newRefusal(CodePermissionDenied, "the token %q may not call %s with these arguments", c.by.Principal.Name, t.id)
	}
	return nil
}

// missingTool says why there is no tool of a name: its server may be away.
func (h *Service) missingTool(c *call, name string) error {
	server, bare, ok := splitID(name)
	if !ok {
		server, bare, ok = splitListed(name)
	}
	if !ok || !c.policy.allowsTool(server, bare, models.ToolRead) {
		return toolNotFound(name)
	}
	s, known := h.status(server)
	if !known || s.State == upstream.Ready {
		return toolNotFound(name)
	}
	return newRefusal(CodeServerError, "the MCP server %q is %s: %s", server, s.State, orElse(s.Error, "it has not started yet"))
}

// argumentObject is what a tool is given: an object, empty where nothing was said.
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

// forward has an upstream do a call.
func (h *Service) forward(ctx context.Context, c *call) (*mcp.CallToolResult, error) {
	res, err := h.upstreams.Call(ctx, c.tool.server, c.tool.name, c.args, &upstream.CallOptions{
		Progress: c.opts.Progress, Elicit: c.opts.Elicit, Timeout: c.opts.Timeout,
	})
	if err != nil {
		return nil, h.upstreamError(c.tool.id, err)
	}
	return withoutServerInfo(res), nil
}

// upstreamError is what a caller is told of an upstream's failure.
func (h *Service) upstreamError(id string, err error) error {
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
