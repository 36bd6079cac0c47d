package tools

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/yosida95/uritemplate/v3"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/models"
)

// Resources returns the resources of all upstreams that the caller may see, sorted by upstream.
func (svc *Service) Resources(ctx context.Context, by Caller) ([]Listed[*mcp.Resource], error) {
	return collectItems(ctx, svc, by, svc.upstreams.Resources, resourcePrefix, func(r *mcp.Resource) string { return r.URI })
}

// ResourceTemplates returns the resource templates, like Resources.
func (svc *Service) ResourceTemplates(ctx context.Context, by Caller) ([]Listed[*mcp.ResourceTemplate], error) {
	return collectItems(ctx, svc, by, svc.upstreams.ResourceTemplates, resourcePrefix, func(r *mcp.ResourceTemplate) string { return r.URITemplate })
}

// Prompts returns the prompts, like Resources, under their listed names with the upstream's id.
func (svc *Service) Prompts(ctx context.Context, by Caller) ([]Listed[*mcp.Prompt], error) {
	list, err := collectItems(ctx, svc, by, svc.upstreams.Prompts, promptPrefix, func(p *mcp.Prompt) string { return p.Name })
	for i, o := range list {
		server, name, _ := strings.Cut(o.Key, " ")
		named := *o.Item
		named.Name = svc.opts.Names.listed(server, name)
		list[i].Item = &named
	}
	return list, err
}

// collectItems returns the items of all upstreams that the caller may see.
func collectItems[T any](ctx context.Context, svc *Service, by Caller, of func(id string) []T, prefix string, name func(T) string) ([]Listed[T], error) {
	policy, err := svc.policyOf(ctx, by)
	if err != nil {
		return nil, err
	}
	var out []Listed[T]
	for _, id := range svc.catalogue.Load().servers {
		for _, v := range of(id) {
			if policy.allowsTool(id, prefix+name(v), models.ToolRead) {
				out = append(out, Listed[T]{id + " " + name(v), v})
			}
		}
	}
	return out, nil
}

// ReadResource reads a resource from the first upstream that has it; the error is that of Call.
func (svc *Service) ReadResource(ctx context.Context, by Caller, uri string, opts *CallOptions) (out *mcp.ReadResourceResult, err error) {
	server, err := svc.resourceServer(ctx, by, uri, false)
	if err != nil {
		return nil, err
	}
	args, _ := json.Marshal(map[string]string{"uri": uri}) // never fails for strings
	err = svc.forwardRequest(ctx, by, server, resourcePrefix+uri, args, func() (texts []string, err error) {
		out, err = svc.upstreams.ReadResource(ctx, server, uri, opts)
		if err != nil {
			return nil, svc.upstreamError(uri, err)
		}
		out.Meta = metaWithoutServerInfo(out.Meta)
		for _, c := range out.Contents {
			texts = append(texts, c.Text)
		}
		return texts, nil
	})
	return out, err
}

// resourceServer returns the upstream that has a resource. With isTemplate, uri may be a template.
func (svc *Service) resourceServer(ctx context.Context, by Caller, uri string, isTemplate bool) (string, error) {
	policy, err := svc.policyOf(ctx, by)
	if err != nil {
		return "", err
	}
	servers := slices.DeleteFunc(slices.Clone(svc.catalogue.Load().servers), func(id string) bool {
		return !policy.allowsTool(id, resourcePrefix+uri, models.ToolRead)
	})
	for _, has := range []func(id string) bool{
		func(id string) bool {
			return isTemplate && slices.ContainsFunc(svc.upstreams.ResourceTemplates(id), func(r *mcp.ResourceTemplate) bool { return r.URITemplate == uri })
		},
		func(id string) bool {
			return slices.ContainsFunc(svc.upstreams.Resources(id), func(r *mcp.Resource) bool { return r.URI == uri })
		},
		func(id string) bool {
			return slices.ContainsFunc(svc.upstreams.ResourceTemplates(id), func(r *mcp.ResourceTemplate) bool { return matchesTemplate(r.URITemplate, uri) })
		},
	} {
		if i := slices.IndexFunc(servers, has); i >= 0 {
			return servers[i], nil
		}
	}
	// It does not exist or is hidden from the caller.
	return "", WithDetails(NewError(errs.NotFound, "RESOURCE_NOT_FOUND", "there is no resource %q", input.Clip(uri)), map[string]any{"uri": input.Clip(uri)})
}

// matchesTemplate reports whether a URI matches a template (RFC 6570).
func matchesTemplate(template, uri string) bool {
	t, err := uritemplate.New(template)
	return err == nil && t.Regexp().MatchString(uri)
}

// SubscribeResource sends updates of a resource to Options.OnChange until end is called; end may
// be called twice. Upstreams count the subscriptions of all APIs. The error is that of Call.
func (svc *Service) SubscribeResource(ctx context.Context, by Caller, uri string) (end func(context.Context), err error) {
	server, err := svc.resourceServer(ctx, by, uri, false)
	if err != nil {
		return nil, err
	}
	svc.subscribing.Lock()
	defer svc.subscribing.Unlock()
	if err := svc.upstreams.Subscribe(ctx, server, uri); err != nil {
		return nil, toCallError(svc.upstreamError(uri, err))
	}
	var once sync.Once
	return func(ctx context.Context) { once.Do(func() { svc.unsubscribe(ctx, server, uri) }) }, nil
}

func (svc *Service) unsubscribe(ctx context.Context, server, uri string) {
	svc.subscribing.Lock()
	defer svc.subscribing.Unlock()
	if err := svc.upstreams.Unsubscribe(context.WithoutCancel(ctx), server, uri); err != nil {
		svc.log.Debug("unsubscribe from a resource", "upstream", server, "error", err)
	}
}

// forwardRequest executes a request that is not a tool call with the same checks: tokens are
// reserved and the audit log records it. do returns the texts that a model reads.
func (svc *Service) forwardRequest(ctx context.Context, by Caller, server, name string, args json.RawMessage, do func() ([]string, error)) error {
	c, err := svc.newInvocation(by, args)
	if err != nil {
		return err
	}
	c.tool = &Tool{Server: server, Name: name[:min(len(name), maxPattern)], Class: models.ToolRead}
	p, err := svc.policyOf(ctx, by)
	if err != nil {
		return err
	}
	if !p.allowsArguments(c.tool, args) {
		err = errs.New(errs.ToolDenied, "the token %q may not request %s with these arguments", by.Principal.Name, input.Clip(name))
		return toCallError(svc.recordRefusal(c, name, err))
	}
	return svc.perform(ctx, c, do)
}

// Prompt returns a prompt by any of its names.
func (svc *Service) Prompt(ctx context.Context, by Caller, p *mcp.GetPromptParams, opts *CallOptions) (out *mcp.GetPromptResult, err error) {
	server, name, err := svc.findPrompt(ctx, by, p.Name)
	if err != nil {
		return nil, err
	}
	args, _ := json.Marshal(p.Arguments) // never fails for strings
	err = svc.forwardRequest(ctx, by, server, promptPrefix+name, args, func() (texts []string, err error) {
		out, err = svc.upstreams.GetPrompt(ctx, server, name, p.Arguments, opts)
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
	return "", "", NewError(errs.NotFound, "PROMPT_NOT_FOUND", "there is no prompt %q", input.Clip(name))
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
		server, err = svc.resourceServer(ctx, by, ref.URI, true)
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
