package tools

import (
	"context"
	"encoding/json"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/models"
)

// Prompt gets a prompt by any of its names.
func (h *Service) Prompt(ctx context.Context, by Caller, p *mcp.GetPromptParams) (out *mcp.GetPromptResult, err error) {
	server, name, err := h.findPrompt(ctx, by, p.Name)
	if err != nil {
		return nil, err
	}
	args, _ := json.Marshal(p.Arguments) // of strings
	err = h.forwardRequest(ctx, by, server, promptPrefix+name, args, func(ctx context.Context) (texts []string, err error) {
		out, err = h.upstreams.GetPrompt(ctx, server, name, p.Arguments, nil)
		if err != nil {
			return nil, h.upstreamError(p.Name, err)
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
func (h *Service) findPrompt(ctx context.Context, by Caller, name string) (server, bare string, err error) {
	may, err := h.policyOf(ctx, by)
	if err != nil {
		return "", "", err
	}
	for _, id := range h.catalogue.Load().servers {
		for _, p := range h.upstreams.Prompts(id) {
			if (name == toolID(id, p.Name) || name == portable(id, p.Name)) && may.allowsTool(id, promptPrefix+p.Name, models.ToolRead) {
				return id, p.Name, nil
			}
		}
	}
	return "", "", newRefusal(CodePromptNotFound, "there is no prompt %q", clip(name))
}

// Complete has the upstream of a prompt or of a resource's template complete an argument.
func (h *Service) Complete(ctx context.Context, by Caller, p *mcp.CompleteParams) (out *mcp.CompleteResult, err error) {
	server, sent := "", *p
	ref := *p.Ref
	name := ""
	if ref.Type == "ref/prompt" {
		server, ref.Name, err = h.findPrompt(ctx, by, ref.Name)
		name = promptPrefix + ref.Name
	} else {
		server, err = h.templateServer(ctx, by, ref.URI)
		name = resourcePrefix + ref.URI
	}
	if err != nil {
		return nil, err
	}
	sent.Ref, sent.Meta = &ref, nil
	args, _ := json.Marshal(map[string]string{p.Argument.Name: p.Argument.Value}) // of strings
	err = h.forwardRequest(ctx, by, server, name, args, func(ctx context.Context) (texts []string, err error) {
		if out, err = h.upstreams.Complete(ctx, server, &sent, nil); err != nil {
			return nil, h.upstreamError(ref.Name+ref.URI, err)
		}
		return out.Completion.Values, nil
	})
	return out, err
}
