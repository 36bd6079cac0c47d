package tools

import (
	"context"

	"comet/internal/auth"
	"comet/internal/errs"
	"comet/models"
)

// Verdict is whether a token may call a tool, and why not.
type Verdict struct {
	ID string
	// Callable says that it may be called; rules with arguments may still refuse some arguments.
	Callable bool
	Listed   bool // whether MCPTools lists it
	// Class decides whether a step of a workflow that calls the tool needs approval; "" for an unknown tool.
	Class  models.ToolClass
	Reason string // why it may or may not be called
	Rule   string // the rule that refuses it, "" for none
}

// Simulate returns whether a token may call tools with a policy, nil for its own; the policies of the tokens that it
// descends from apply as well. ids are names of tools, none for all tools.
func (svc *Service) Simulate(ctx context.Context, token models.Token, own *models.ToolPolicy, ids []string) ([]Verdict, error) {
	c := &Invocation{}
	c.Caller.Principal = models.Principal{TokenID: token.ID, Name: token.Name, Scopes: token.Scopes, AgentID: token.AgentID}
	blocked := auth.Require(c.Caller.Principal, models.ScopeToolsCall)
	if err := svc.loadCatalogue(ctx, c); errs.Is(err, errs.ToolDenied) {
		blocked, c.catalogue = err, svc.catalogue.Load()
	} else if err != nil {
		return nil, err
	}
	if own != nil {
		if err := checkRules(*own); err != nil {
			if e := errs.From(err); len(e.Fields) > 0 { // of the policy, which is a member of the request
				for i := range e.Fields {
					e.Fields[i].Pointer = "/policy" + e.Fields[i].Pointer
				}
				return nil, e
			}
			return nil, err
		}
		c.policy = &policy{ToolPolicy: *own}
		if token.ParentID != nil {
			var err error
			if c.policy.above, err = svc.cachedPolicyOf(ctx, *token.ParentID); err != nil {
				return nil, err
			}
		}
	}
	if len(ids) == 0 {
		for _, t := range c.catalogue.all {
			ids = append(ids, t.ID)
		}
	}
	out := make([]Verdict, len(ids))
	for i, id := range ids {
		out[i] = svc.judge(c, id, blocked)
	}
	return out, nil
}

// judge returns the verdict about one tool. blocked is why the token may call none.
func (svc *Service) judge(c *Invocation, id string, blocked error) Verdict {
	t := c.catalogue.byName[id]
	if t == nil {
		return Verdict{ID: id, Reason: "no server offers a tool of this name"}
	}
	v := Verdict{ID: t.ID, Class: t.Class, Listed: blocked == nil && t.visibleTo(c.policy) && svc.isListed(t)}
	refused, err := t.refusedBy(c.policy), svc.permit(c, t, t.ID)
	switch {
	case blocked != nil:
		v.Reason = errs.From(blocked).Detail
	case refused != nil:
		v.Reason, v.Rule = refused.reason, refused.rule
	case err != nil:
		v.Reason = errs.From(err).Detail
	default:
		v.Callable, v.Reason = true, "no rule refuses it"
	}
	return v
}
