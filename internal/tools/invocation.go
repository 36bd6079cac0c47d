package tools

import (
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/telemetry"
	"comet/internal/upstream"
	"comet/models"
)

// Values of Caller.Source, as the audit log records them.
const (
	SourceMCP      = "mcp"
	SourceREST     = "rest"
	SourceCode     = "code"
	SourceTask     = "task"
	SourceWorkflow = "workflow"
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
	// Traceparent is the W3C trace context of the request, "" for none.
	Traceparent string
	// Payer is the agent that is charged; "" for the agent of the token, or nova.
	Payer string
	// Bill collects the calls of a caller that stores their records and charges itself; nil for others.
	Bill *Bill
}

// Traced returns the caller with a W3C trace context, unless that is invalid or the caller has one.
func (c Caller) Traced(traceparent string) Caller {
	if id := telemetry.TraceID(traceparent); id != "" && c.TraceID == "" {
		c.TraceID, c.Traceparent = id, traceparent
	}
	return c
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
type CallOptions = upstream.CallOptions

// Invocation is a call in progress.
type Invocation struct {
	ID        string
	Caller    Caller
	Arguments json.RawMessage
	Options   CallOptions

	at        time.Time
	tool      *Tool
	policy    *policy // of the caller's token
	failed    bool    // the tool returned an error as its result
	catalogue *catalogue
}

// Visible returns the tools that the caller may see, comet's own first, in order.
func (c *Invocation) Visible() []*Tool { return c.catalogue.visible(c.policy) }

// Find returns the tool with a name in any form, nil for none or one the caller may not see.
func (c *Invocation) Find(name string) *Tool {
	if t := c.catalogue.byName[name]; t != nil && t.visibleTo(c.policy) {
		return t
	}
	return nil
}

// Decode decodes the arguments, rejects unknown members and checks the fields.
func (c *Invocation) Decode(v any) error {
	err := input.DecodeJSON(c.Arguments, v)
	if err == nil {
		err = input.Validate(v).Err()
	}
	if err != nil {
		return c.Invalid("%s: %s", c.tool.ID, Detail(err))
	}
	return nil
}

// Invalid returns an error for invalid arguments: INVALID_PARAMS (AgentCards, “Codes d'erreur”).
func (c *Invocation) Invalid(format string, args ...any) error {
	return errs.Wrap(errs.InvalidRequest, ErrInvalidArguments, format, args...).With(memberName, "INVALID_ARGUMENTS")
}

// newInvocation returns an invocation without its tool, after a check of the caller's scope.
func (svc *Service) newInvocation(by Caller, args json.RawMessage) (*Invocation, error) {
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return nil, toCallError(err)
	}
	return &Invocation{ID: uuid.Must(uuid.NewV7()).String(), at: svc.opts.Clock(), Caller: by, Arguments: args}, nil
}
