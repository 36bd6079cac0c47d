package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
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

// listResources answers resources/list: those of all upstreams, in the order of the servers.
func (g *Gateway) listResources(ctx context.Context, by Caller, p *mcp.ListResourcesParams) (*mcp.ListResourcesResult, error) {
	list, err := gather(ctx, g, by, g.upstreams.Resources, func(r *mcp.Resource) string { return resourcePrefix + r.URI })
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(list, p.Cursor, g.opts.PageSize, func(o owned[*mcp.Resource]) string { return o.server + " " + o.it.URI })
	return &mcp.ListResourcesResult{Resources: bare(page), NextCursor: next, Cacheable: fresh()}, err
}

// listTemplates answers resources/templates/list.
func (g *Gateway) listTemplates(ctx context.Context, by Caller, p *mcp.ListResourceTemplatesParams) (*mcp.ListResourceTemplatesResult, error) {
	list, err := gather(ctx, g, by, g.upstreams.ResourceTemplates, func(r *mcp.ResourceTemplate) string { return resourcePrefix + r.URITemplate })
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(list, p.Cursor, g.opts.PageSize, func(o owned[*mcp.ResourceTemplate]) string { return o.server + " " + o.it.URITemplate })
	return &mcp.ListResourceTemplatesResult{ResourceTemplates: bare(page), NextCursor: next, Cacheable: fresh()}, err
}

// listPrompts answers prompts/list. A prompt has its server's id before its name, as a tool.
func (g *Gateway) listPrompts(ctx context.Context, by Caller, p *mcp.ListPromptsParams) (*mcp.ListPromptsResult, error) {
	list, err := gather(ctx, g, by, g.upstreams.Prompts, func(r *mcp.Prompt) string { return promptPrefix + r.Name })
	if err != nil {
		return nil, err
	}
	page, next, err := pageOf(list, p.Cursor, g.opts.PageSize, func(o owned[*mcp.Prompt]) string { return o.server + " " + o.it.Name })
	out := &mcp.ListPromptsResult{Prompts: []*mcp.Prompt{}, NextCursor: next, Cacheable: fresh()}
	for _, o := range page {
		named := *o.it
		named.Name = g.opts.Names.listed(o.server, o.it.Name)
		out.Prompts = append(out.Prompts, &named)
	}
	return out, err
}

// owned is something of a server.
type owned[T any] struct {
	server string
	it     T
}

func bare[T any](list []owned[T]) []T {
	out := make([]T, 0, len(list))
	for _, o := range list {
		out = append(out, o.it)
	}
	return out
}

// gather returns what all upstreams have of something and the caller may see.
func gather[T any](ctx context.Context, g *Gateway, by Caller, of func(id string) []T, name func(T) string) ([]owned[T], error) {
	may, err := g.may(ctx, by)
	if err != nil {
		return nil, err
	}
	var out []owned[T]
	for _, id := range g.catalogue.Load().servers {
		for _, v := range of(id) {
			if may.shows(id, name(v), models.ToolRead) {
				out = append(out, owned[T]{id, v})
			}
		}
	}
	return out, nil
}

// readResource answers resources/read, from the first server that has the resource or a
// template for it.
func (g *Gateway) readResource(ctx context.Context, by Caller, p *mcp.ReadResourceParams) (*mcp.ReadResourceResult, error) {
	server, err := g.serverOf(ctx, by, p.URI)
	if err != nil {
		return nil, err
	}
	var out *mcp.ReadResourceResult
	args, _ := json.Marshal(map[string]string{"uri": p.URI}) // of a string
	err = g.passThrough(ctx, by, server, resourcePrefix+p.URI, args, func(ctx context.Context) (texts []string, err error) {
		out, err = g.upstreams.ReadResource(ctx, server, p.URI, nil)
		if err != nil {
			return nil, g.upstreamError(p.URI, err)
		}
		for _, c := range out.Contents {
			texts = append(texts, c.Text)
		}
		return texts, nil
	})
	return out, err
}

// getPrompt answers prompts/get.
func (g *Gateway) getPrompt(ctx context.Context, by Caller, p *mcp.GetPromptParams) (*mcp.GetPromptResult, error) {
	server, name, err := g.promptNamed(ctx, by, p.Name)
	if err != nil {
		return nil, err
	}
	var out *mcp.GetPromptResult
	args, _ := json.Marshal(p.Arguments) // of strings
	err = g.passThrough(ctx, by, server, promptPrefix+name, args, func(ctx context.Context) (texts []string, err error) {
		out, err = g.upstreams.GetPrompt(ctx, server, name, p.Arguments, nil)
		if err != nil {
			return nil, g.upstreamError(p.Name, err)
		}
		for _, m := range out.Messages {
			if t, ok := m.Content.(*mcp.TextContent); ok {
				texts = append(texts, t.Text)
			}
		}
		return texts, nil
	})
	return out, err
}

// promptNamed finds a prompt by any of its names.
func (g *Gateway) promptNamed(ctx context.Context, by Caller, name string) (server, bare string, err error) {
	may, err := g.may(ctx, by)
	if err != nil {
		return "", "", err
	}
	for _, id := range g.catalogue.Load().servers {
		for _, p := range g.upstreams.Prompts(id) {
			if (name == toolID(id, p.Name) || name == portable(id, p.Name)) && may.shows(id, promptPrefix+p.Name, models.ToolRead) {
				return id, p.Name, nil
			}
		}
	}
	return "", "", invalid("there is no prompt %q", clip(name))
}

// serverOf finds the server that has a resource.
func (g *Gateway) serverOf(ctx context.Context, by Caller, uri string) (string, error) {
	may, err := g.may(ctx, by)
	if err != nil {
		return "", err
	}
	servers := slices.DeleteFunc(slices.Clone(g.catalogue.Load().servers), func(id string) bool {
		return !may.shows(id, resourcePrefix+uri, models.ToolRead)
	})
	for _, id := range servers {
		if slices.ContainsFunc(g.upstreams.Resources(id), func(r *mcp.Resource) bool { return r.URI == uri }) {
			return id, nil
		}
	}
	for _, id := range servers {
		if slices.ContainsFunc(g.upstreams.ResourceTemplates(id), func(r *mcp.ResourceTemplate) bool { return fits(r.URITemplate, uri) }) {
			return id, nil
		}
	}
	return "", noResource(uri)
}

// noResource is the answer for a resource that is not there or that the caller may not see.
func noResource(uri string) error {
	data, _ := json.Marshal(map[string]string{"uri": clip(uri)}) // of a string
	return &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: fmt.Sprintf("there is no resource %q", clip(uri)), Data: data}
}

// fits reports whether a URI may be made of a template (RFC 6570).
func fits(template, uri string) bool {
	t, err := uritemplate.New(template)
	if err != nil {
		return false
	}
	return t.Regexp().MatchString(uri)
}

// complete answers completion/complete.
func (g *Gateway) complete(ctx context.Context, by Caller, p *mcp.CompleteParams) (*mcp.CompleteResult, error) {
	server, sent := "", *p
	ref := *p.Ref
	var err error
	if ref.Type == "ref/prompt" {
		server, ref.Name, err = g.promptNamed(ctx, by, ref.Name)
	} else {
		server, err = g.templateOf(ctx, by, ref.URI)
	}
	if err != nil {
		return nil, err
	}
	sent.Ref, sent.Meta = &ref, nil
	name := promptPrefix + ref.Name
	if ref.Type != "ref/prompt" {
		name = resourcePrefix + ref.URI
	}
	var out *mcp.CompleteResult
	args, _ := json.Marshal(map[string]string{p.Argument.Name: p.Argument.Value}) // of strings
	err = g.passThrough(ctx, by, server, name, args, func(ctx context.Context) (texts []string, err error) {
		if out, err = g.upstreams.Complete(ctx, server, &sent, nil); err != nil {
			return nil, g.upstreamError(ref.Name+ref.URI, err)
		}
		return out.Completion.Values, nil
	})
	return out, err
}

// templateOf finds the server that has a template, or the resource.
func (g *Gateway) templateOf(ctx context.Context, by Caller, uri string) (string, error) {
	may, err := g.may(ctx, by)
	if err != nil {
		return "", err
	}
	for _, id := range g.catalogue.Load().servers {
		if may.shows(id, resourcePrefix+uri, models.ToolRead) &&
			slices.ContainsFunc(g.upstreams.ResourceTemplates(id), func(r *mcp.ResourceTemplate) bool { return r.URITemplate == uri }) {
			return id, nil
		}
	}
	return g.serverOf(ctx, by, uri)
}
