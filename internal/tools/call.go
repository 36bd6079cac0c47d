package tools

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/upstream"
	"comet/models"
)

// Call is CallTool with a decoded result.
func (svc *Service) Call(ctx context.Context, by Caller, name string, args json.RawMessage, opts *CallOptions) (*mcp.CallToolResult, error) {
	res, err := svc.CallTool(ctx, by, name, args, opts)
	if err != nil {
		return nil, err
	}
	return res.Decoded()
}

// CallTool calls a tool by any of its names. args is a JSON object or empty. The error is an
// *errs.Error with a name where the tool returned no result; a cancelled context returns its own.
func (svc *Service) CallTool(ctx context.Context, by Caller, name string, args json.RawMessage, opts *CallOptions) (*upstream.Result, error) {
	c, err := svc.newInvocation(by, args)
	if err != nil {
		return nil, err
	}
	if opts != nil {
		c.Options = *opts
	}
	if err := svc.resolve(ctx, c, name); err != nil {
		return nil, svc.callError(ctx, c, svc.recordRefusal(c, name, err))
	}
	var res *upstream.Result
	err = svc.perform(ctx, c, func() (_ []string, err error) {
		if c.tool.IsBuiltin() {
			var out *mcp.CallToolResult
			out, err = c.tool.builtin.Execute(ctx, c)
			res = upstream.NewResult(out)
		} else {
			res, err = svc.forward(ctx, c)
		}
		c.failed = res != nil && res.IsError()
		return textsOf(res), err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// perform charges, executes and records an allowed invocation. do returns the texts that a model reads.
func (svc *Service) perform(ctx context.Context, c *Invocation, do func() (texts []string, err error)) (err error) {
	reserved := estimateTokens(len(c.Arguments))
	record := callRecord{}
	switch {
	case c.Caller.Source == SourceTask: // a task is charged when it completes
	case c.Caller.Bill != nil:
		if err = c.Caller.Bill.admit(c.Caller.Source, reserved); err != nil {
			return svc.callError(ctx, c, svc.recordRefusal(c, c.tool.ID, err))
		}
		record.admitted = reserved
	default:
		if record.hold, err = svc.auditLog.prepaid.Hold(ctx, c.Caller.payer(), reserved); err != nil {
			return svc.callError(ctx, c, svc.recordRefusal(c, c.tool.ID, err))
		}
	}
	texts, err := svc.recoverPanic(c, do)
	record.texts = append([]string{string(c.Arguments)}, texts...)
	if record.hold != nil {
		if size := int(record.textSize()) - len(c.Arguments); size > 0 {
			reserved += estimateTokens(size)
		}
		record.hold.Estimate(reserved)
	}
	record.ToolCall = svc.auditRecord(c, err)
	svc.finish(c, record)
	return svc.callError(ctx, c, err)
}

// recoverPanic turns a panic of do into an error, so that the reservation is released.
func (svc *Service) recoverPanic(c *Invocation, do func() ([]string, error)) (texts []string, err error) {
	defer func() {
		if p := recover(); p != nil {
			svc.log.Error("a tool call panicked", "call", c.ID, "tool", c.tool.ID, "panic", p, "stack", string(debug.Stack()))
			err = errs.New(errs.Internal, "panic: %v", p)
		}
	}()
	return do()
}

// callError returns the error of an invocation as its caller sees it.
func (svc *Service) callError(ctx context.Context, c *Invocation, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	failed := toCallError(err)
	if failed.Code == errs.Internal {
		svc.log.Error("a tool call failed", "call", c.ID, "tool", input.Clip(toolID(c.tool.Server, c.tool.Name)), "error", err)
	}
	return failed
}

// MayCall returns an error if a caller may not call a tool, by any of its names, with arguments, which may be nil. It does not
// check them against the tool's schema.
func (svc *Service) MayCall(ctx context.Context, by Caller, name string, args json.RawMessage) error {
	c, err := svc.newInvocation(by, args)
	if err == nil {
		err = svc.resolve(ctx, c, name)
	}
	return svc.callError(ctx, cmp.Or(c, &Invocation{tool: &Tool{}}), err)
}

// resolve finds the tool and checks whether the caller may call it with these arguments.
func (svc *Service) resolve(ctx context.Context, c *Invocation, name string) error {
	err := svc.find(ctx, c, name)
	if err == nil && !c.policy.allowsArguments(c.tool, c.Arguments) {
		err = errs.New(errs.ToolDenied, "the token %q may not call %s with these arguments", c.Caller.Principal.Name, c.tool.ID)
	}
	return err
}

// find finds the tool and checks whether the caller may call it with any arguments.
func (svc *Service) find(ctx context.Context, c *Invocation, name string) (err error) {
	if err = svc.loadCatalogue(ctx, c); err != nil {
		return err
	}
	if c.Arguments, err = argumentObject(c.Arguments); err != nil {
		return err
	}
	t := c.catalogue.byName[name]
	if t == nil {
		return svc.missingTool(c, name)
	}
	c.tool = t
	return svc.permit(c, t, name)
}

// permit checks whether the caller may call a tool with any arguments.
func (svc *Service) permit(c *Invocation, t *Tool, name string) error {
	switch {
	case !t.allowedBy(c.policy):
		return svc.toolNotFound(name)
	case t.quarantined:
		return NewError(errs.NotFound, "TOOL_NOT_FOUND", "the definition of %s is new or has changed, and needs approval: see comet upstreams tools %s", input.Clip(t.ID), t.Server)
	case t.IsBuiltin() && t.builtin.Scope != "" && !c.Caller.Principal.Has(t.builtin.Scope):
		return auth.Require(c.Caller.Principal, t.builtin.Scope)
	}
	return nil
}

// loadCatalogue adds the tools and the policy of the caller's token, and checks whether it may call tools.
func (svc *Service) loadCatalogue(ctx context.Context, c *Invocation) (err error) {
	if agent := c.Caller.Principal.AgentID; agent != nil {
		if registeredItself, err := svc.orchestrator.IsSelfRegistered(ctx, *agent); err != nil || registeredItself {
			return cmp.Or(err, error(errs.New(errs.ToolDenied, "the agent %q registered itself without proof of its identity; it may not call tools", *agent)))
		}
	}
	if c.policy, err = svc.cachedPolicyOf(ctx, c.Caller.Principal.TokenID); err != nil {
		return err
	}
	c.catalogue = svc.catalogue.Load()
	return nil
}

// Catalogue returns an invocation of no tool, whose Visible and Find have the tools of the caller.
func (svc *Service) Catalogue(ctx context.Context, by Caller) (*Invocation, error) {
	c, err := svc.newInvocation(by, nil)
	if err == nil {
		err = svc.loadCatalogue(ctx, c)
	}
	if err != nil {
		return nil, svc.callError(ctx, &Invocation{tool: &Tool{}}, err)
	}
	return c, nil
}

// Target is a tool that a caller may call.
type Target struct {
	*Tool
	// Digest changes with the definition of the tool, its class and the policies of the caller's token.
	Digest string
}

// Lookup returns a tool that the caller may call, by any of its names. Its errors are those of CallTool; only a
// call checks its arguments.
func (svc *Service) Lookup(ctx context.Context, by Caller, name string) (Target, error) {
	c, err := svc.newInvocation(by, nil)
	if err == nil {
		err = svc.find(ctx, c, name)
	}
	if err != nil {
		return Target{}, svc.callError(ctx, &Invocation{tool: &Tool{}}, err)
	}
	var policies []models.ToolPolicy
	for p := c.policy; p != nil; p = p.above {
		policies = append(policies, p.ToolPolicy)
	}
	facts, err := json.Marshal([]any{c.tool.ID, c.tool.digest, c.tool.Class, policies})
	return Target{c.tool, hexDigest(facts)}, err
}

// missingTool returns the error for an unknown tool; its server may be unavailable.
func (svc *Service) missingTool(c *Invocation, name string) error {
	server, bare, ok := splitID(name)
	if !ok {
		server, bare, ok = strings.Cut(name, "__") // a server's id has no underscore
	}
	if !ok || !c.policy.allowsTool(server, bare, models.ToolRead) {
		return svc.toolNotFound(name)
	}
	s, known := svc.upstreams.Server(server)
	if !known || s.State == upstream.Ready {
		return svc.toolNotFound(name)
	}
	return errs.New(errs.UpstreamFailed, "%s", Unready(s))
}

// Unready describes a server that is not ready, as a clause.
func Unready(s upstream.Status) string {
	if s.State == upstream.Failed {
		return fmt.Sprintf("the MCP server %q has failed: %s", s.ID, s.Error)
	}
	return fmt.Sprintf("the MCP server %q is %s; its tools can be called when it is ready", s.ID, s.State)
}

// toolNotFound is the error for a tool that does not exist or is hidden from the caller.
func (svc *Service) toolNotFound(name string) error {
	return NewError(errs.NotFound, "TOOL_NOT_FOUND", "there is no tool %q; find one with %s", input.Clip(name), svc.finder)
}

// argumentObject checks that arguments are an object and returns an empty one for none.
func argumentObject(args json.RawMessage) (json.RawMessage, error) {
	trimmed := bytes.TrimSpace(args)
	switch {
	case len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null")):
		return json.RawMessage("{}"), nil
	case trimmed[0] != '{':
		return nil, errs.New(errs.InvalidRequest, "arguments must be a JSON object, not %s", input.Clip(string(trimmed)))
	}
	return trimmed, nil
}

func (svc *Service) forward(ctx context.Context, c *Invocation) (*upstream.Result, error) {
	res, err := svc.upstreams.Call(ctx, c.tool.Server, c.tool.Name, c.Arguments, &c.Options)
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
