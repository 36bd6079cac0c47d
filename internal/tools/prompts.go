package tools

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/errs"
	"comet/models"
)

// Prompt returns a prompt by any of its names.
func (svc *Service) Prompt(ctx context.Context, by Caller, p *mcp.GetPromptParams) (out *mcp.GetPromptResult, err error) {
	server, name, err := svc.findPrompt(ctx, by, p.Name)
	if err != nil {
		return nil, err
	}
	args, _ := json.Marshal(p.Arguments) // never fails for strings
	err = svc.forwardRequest(ctx, by, server, promptPrefix+name, args, func() (texts []string, err error) {
		out, err = svc.upstreams.GetPrompt(ctx, server, name, p.Arguments)
		if err != nil {
			return nil, svc.upstreamError(p.Name, err)
		}
		out.Meta = metaWithoutServerInfo(out.Meta)
		for _, m := range out.Messages {
			if t, ok := m.Content.(*mcp.TextContent); ok {
				texts = append(texts, t.Text)
			}
		}
		return texts, nil
	})
	return out, err
}

// findPrompt finds a prompt by any of its names.
func (svc *Service) findPrompt(ctx context.Context, by Caller, name string) (server, bare string, err error) {
	policy, err := svc.policyOf(ctx, by)
	if err != nil {
		return "", "", err
	}
	for _, id := range svc.catalogue.Load().servers {
		for _, p := range svc.upstreams.Prompts(id) {
			if (name == toolID(id, p.Name) || name == portable(id, p.Name)) && policy.allowsTool(id, promptPrefix+p.Name, models.ToolRead) {
				return id, p.Name, nil
			}
		}
	}
	return "", "", NewError(errs.NotFound, "PROMPT_NOT_FOUND", "there is no prompt %q", clip(name))
}

// Complete completes an argument of a prompt or a resource template at its upstream.
func (svc *Service) Complete(ctx context.Context, by Caller, p *mcp.CompleteParams) (out *mcp.CompleteResult, err error) {
	server, sent := "", *p
	ref := *p.Ref
	name := ""
	if ref.Type == "ref/prompt" {
		server, ref.Name, err = svc.findPrompt(ctx, by, ref.Name)
		name = promptPrefix + ref.Name
	} else {
		server, err = svc.templateServer(ctx, by, ref.URI)
		name = resourcePrefix + ref.URI
	}
	if err != nil {
		return nil, err
	}
	sent.Ref, sent.Meta = &ref, nil
	args, _ := json.Marshal(map[string]string{p.Argument.Name: p.Argument.Value}) // never fails for strings
	err = svc.forwardRequest(ctx, by, server, name, args, func() (texts []string, err error) {
		if out, err = svc.upstreams.Complete(ctx, server, &sent); err != nil {
			return nil, svc.upstreamError(ref.Name+ref.URI, err)
		}
		return out.Completion.Values, nil
	})
	return out, err
}
