package gateway

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"comet/internal/errs"
	"comet/models"
	"comet/store"
)

// Err is an error of a verb as doors other than MCP tell it: a problem whose tool_error is
// the name that MCP clients see.
func Err(err error) error {
	var e *ToolError
	if !errors.As(err, &e) {
		return err
	}
	code := errs.CodeFailed
	switch {
	case e.Code == CodeToolNotFound:
		code = errs.NotFound
	case e.Code == CodeBudgetExceeded:
		code = errs.BudgetExceeded
	case e.Code == CodePermissionDenied:
		code = errs.ToolDenied
	case e.Code == CodeInvalidArguments:
		code = errs.InvalidRequest
	case e.Code == CodeServerError:
		code = errs.UpstreamFailed
	case e.Code == CodeUnavailable:
		code = errs.Unavailable
	case e.Code == CodeInternal:
		code = errs.Internal
	case strings.HasSuffix(e.Code, "_BUSY"):
		code = errs.Busy
	}
	out := errs.New(code, "%s", e.Message).With("tool_error", e.Code)
	if at, ok := e.Details["reset_at"]; ok {
		_ = out.With("reset_at", at)
	}
	if len(e.Details) > 0 {
		_ = out.With("tool_details", e.Details)
	}
	return out
}

// TraceOf is the trace of a traceparent (W3C Trace Context), "" for none.
func TraceOf(traceparent string) string { return traceOf(traceparent) }

// AgentOf is the id of the agent that an upstream is in the registry.
func (g *Gateway) AgentOf(upstreamID string) string { return agentOf(upstreamID) }

// Calls returns lines of the audit trail, the newest first. Only an admin sees those of
// others.
func (g *Gateway) Calls(ctx context.Context, by models.Principal, q models.ToolCallQuery) ([]models.ToolCall, error) {
	if !by.Has(models.ScopeAdmin) {
		if q.TokenID != "" && q.TokenID != by.TokenID {
			return nil, nil
		}
		q.TokenID = by.TokenID
	}
	if err := g.trail.Flush(ctx); err != nil {
		if err = g.trail.Flush(ctx); err != nil { // a connection that was cut is one no longer
			g.log.Debug("the newest calls are not shown yet", "error", err)
		}
	}
	return g.store.ToolCalls(ctx, q)
}

// Purge deletes what the audit trail need not keep any longer.
func (g *Gateway) Purge(ctx context.Context) error {
	const each = 1000
	before := g.store.Now().Add(-g.opts.Retention)
	for {
		var n int64
		err := g.store.Write(ctx, func(tx *store.Tx) (err error) {
			n, err = tx.PurgeToolCalls(before, each)
			return err
		})
		if err != nil || n < each {
			return err
		}
	}
}

// Policy returns a token's policy, or errs.NotFound where it has none.
func (g *Gateway) Policy(ctx context.Context, tokenID string) (models.ToolPolicy, error) {
	p, err := g.store.ToolPolicy(ctx, tokenID)
	if errs.Is(err, errs.NotFound) {
		if _, err := g.store.Token(ctx, tokenID); errs.Is(err, errs.NotFound) {
			return p, errs.New(errs.NotFound, "there is no token %q", clip(tokenID))
		}
		err = errs.New(errs.NotFound, "the token %q has no policy for tools: it may call all", clip(tokenID))
	}
	return p, err
}

// SetPolicy says what a token may do with tools.
func (g *Gateway) SetPolicy(ctx context.Context, by models.Principal, tokenID string, p models.ToolPolicy) error {
	if err := checkRules(p); err != nil {
		return err
	}
	err := g.store.Write(ctx, func(tx *store.Tx) error { return tx.SaveToolPolicy(tokenID, p, by.Name) })
	g.policies.forget(tokenID)
	return err
}

// checkRules refuses rules that can match nothing: a rule that was meant to deny would not.
func checkRules(p models.ToolPolicy) error {
	var v errs.Violations
	id := regexp.MustCompile(`^[A-Za-z0-9*?-]+$`)
	for name, list := range map[string][]models.ToolRule{"allow": p.Allow, "deny": p.Deny} {
		for i, r := range list {
			if server, _, _ := strings.Cut(r.Tool, ":"); !id.MatchString(server) {
				v.Add(errs.InvalidRequest, fmt.Sprintf("/%s/%d/tool", name, i), "pattern",
					"%q is for no server: write serverId:toolName, or a server's id, with * and ? for any characters", clip(r.Tool))
			}
		}
	}
	return v.Err()
}

// DropPolicy takes a token's policy away.
func (g *Gateway) DropPolicy(ctx context.Context, tokenID string) error {
	err := g.store.Write(ctx, func(tx *store.Tx) error { return tx.DropToolPolicy(tokenID) })
	g.policies.forget(tokenID)
	return err
}
