package tools

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/yosida95/uritemplate/v3"

	"comet/models"
)

// Resources and prompts of upstreams pass through as they are. A policy that names tools
// names them too: the resource file:///a of the server fs is the tool fs:resource:file:///a,
// the prompt p is fs:prompt:p, and both are of the class read.
const (
	resourcePrefix = "resource:"
	promptPrefix   = "prompt:"
)

// ServerItem is something of an upstream.
type ServerItem[T any] struct {
	Server string
	Item   T
}

// Resources returns those of all upstreams that the caller may see, in the order of the
// upstreams.
func (h *Service) Resources(ctx context.Context, by Caller) ([]ServerItem[*mcp.Resource], error) {
	return collectItems(ctx, h, by, h.upstreams.Resources, func(r *mcp.Resource) string { return resourcePrefix + r.URI })
}

// ResourceTemplates is Resources for templates.
func (h *Service) ResourceTemplates(ctx context.Context, by Caller) ([]ServerItem[*mcp.ResourceTemplate], error) {
	return collectItems(ctx, h, by, h.upstreams.ResourceTemplates, func(r *mcp.ResourceTemplate) string { return resourcePrefix + r.URITemplate })
}

// Prompts is Resources for prompts. Each has the name it is listed with: its upstream's id
// comes before its own, as with a tool.
func (h *Service) Prompts(ctx context.Context, by Caller) ([]ServerItem[*mcp.Prompt], error) {
	list, err := collectItems(ctx, h, by, h.upstreams.Prompts, func(p *mcp.Prompt) string { return promptPrefix + p.Name })
	for i, o := range list {
		named := *o.Item
		named.Name = h.opts.Names.listed(o.Server, o.Item.Name)
		list[i].Item = &named
	}
	return list, err
}

// collectItems returns what all upstreams have of something and the caller may see.
func collectItems[T any](ctx context.Context, h *Service, by Caller, of func(id string) []T, name func(T) string) ([]ServerItem[T], error) {
	may, err := h.policyOf(ctx, by)
	if err != nil {
		return nil, err
	}
	var out []ServerItem[T]
	for _, id := range h.catalogue.Load().servers {
		for _, v := range of(id) {
			if may.allowsTool(id, name(v), models.ToolRead) {
				out = append(out, ServerItem[T]{id, v})
			}
		}
	}
	return out, nil
}

// ReadResource reads one, from the first upstream that has it or a template for it. What went
// wrong is an *Error, as with a call.
func (h *Service) ReadResource(ctx context.Context, by Caller, uri string) (out *mcp.ReadResourceResult, err error) {
	server, err := h.resourceServer(ctx, by, uri)
	if err != nil {
		return nil, err
	}
	args, _ := json.Marshal(map[string]string{"uri": uri}) // of a string
	err = h.forwardRequest(ctx, by, server, resourcePrefix+uri, args, func(ctx context.Context) (texts []string, err error) {
		out, err = h.upstreams.ReadResource(ctx, server, uri, nil)
		if err != nil {
			return nil, h.upstreamError(uri, err)
		}
		out.Meta = metaWithoutServerInfo(out.Meta)
		for _, c := range out.Contents {
			texts = append(texts, c.Text)
		}
		return texts, nil
	})
	return out, err
}

// resourceServer finds the upstream that has a resource.
func (h *Service) resourceServer(ctx context.Context, by Caller, uri string) (string, error) {
	may, err := h.policyOf(ctx, by)
	if err != nil {
		return "", err
	}
	servers := slices.DeleteFunc(slices.Clone(h.catalogue.Load().servers), func(id string) bool {
		return !may.allowsTool(id, resourcePrefix+uri, models.ToolRead)
	})
	for _, id := range servers {
		if slices.ContainsFunc(h.upstreams.Resources(id), func(r *mcp.Resource) bool { return r.URI == uri }) {
			return id, nil
		}
	}
	for _, id := range servers {
		if slices.ContainsFunc(h.upstreams.ResourceTemplates(id), func(r *mcp.ResourceTemplate) bool { return matchesTemplate(r.URITemplate, uri) }) {
			return id, nil
		}
	}
	return "", resourceNotFound(uri)
}

// templateServer finds the upstream that has a template, or the resource.
func (h *Service) templateServer(ctx context.Context, by Caller, uri string) (string, error) {
	may, err := h.policyOf(ctx, by)
	if err != nil {
		return "", err
	}
	for _, id := range h.catalogue.Load().servers {
		if may.allowsTool(id, resourcePrefix+uri, models.ToolRead) &&
			slices.ContainsFunc(h.upstreams.ResourceTemplates(id), func(r *mcp.ResourceTemplate) bool { return r.URITemplate == uri }) {
			return id, nil
		}
	}
	return h.resourceServer(ctx, by, uri)
}

// resourceNotFound is the answer for a resource that is not there or that the caller may not see.
func resourceNotFound(uri string) *Error {
	e := newRefusal(CodeResourceNotFound, "there is no resource %q", clip(uri))
	e.Details = map[string]any{"uri": clip(uri)}
	return e
}

// matchesTemplate reports whether a URI may be made of a template (RFC 6570).
func matchesTemplate(template, uri string) bool {
	t, err := uritemplate.New(template)
	if err != nil {
		return false
	}
	return t.Regexp().MatchString(uri)
}
