package tools

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/auth"
	"comet/models"
)

// may returns what the caller may do, or why not.
func (h *Service) may(ctx context.Context, by Caller) (*policy, error) {
	if err := auth.Require(by.Principal, models.ScopeToolsCall); err != nil {
		return nil, toError(err)
	}
	p, err := h.policies.of(ctx, by.Principal.TokenID)
	if err != nil {
		return nil, toError(err)
	}
	return p, nil
}

// Offer is a tool as tools/list shows it, under its listed name.
type Offer struct {
	// Place is where it stands among all.
	Place string
	Tool  *mcp.Tool
}

// Offers returns the tools that a client is shown that asks for all: comet's own, which say
// what they are over, and those that are pinned, or all (Options.Expose).
func (h *Service) Offers(ctx context.Context, by Caller) ([]Offer, error) {
	may, err := h.may(ctx, by)
	if err != nil {
		return nil, err
	}
	visible := h.catalogue.Load().visible(may)
	servers := over(visible)
	var out []Offer
	for _, t := range visible {
		if h.offers(t) {
			out = append(out, Offer{t.place(), shownAs(t, servers)})
		}
	}
	return out, nil
}

// offers reports whether a tool is shown to who asks for all.
func (h *Service) offers(t *tool) bool {
	if h.opts.Expose == ExposeAll || t.builtin != nil && !t.hidden {
		return true
	}
	return slices.ContainsFunc(h.opts.Pinned, func(name string) bool {
		return name == t.id || name == t.listed || name == portable(t.server, t.name) || matches(name, t.id)
	})
}

// shownAs is a tool as a client sees it: under its listed name, and comet's own with what
// they are over.
func shownAs(t *tool, servers string) *mcp.Tool {
	d := *t.def
	d.Name = t.listed
	if t.builtin != nil && t.server == agentCards {
		d.Description += servers
	}
	return &d
}

// Tools returns up to limit tools that a token may call, of one server or of all (""), in the
// order in which MCP lists them, behind the one whose place is after.
func (h *Service) Tools(ctx context.Context, by models.Principal, server, after string, limit int) ([]Listed, error) {
	p, err := h.policies.of(ctx, by.TokenID)
	if err != nil {
		return nil, err
	}
	list := slices.DeleteFunc(h.catalogue.Load().visible(p), func(t *tool) bool {
		return server != "" && t.server != server || t.place() <= after
	})
	slices.SortFunc(list, func(a, b *tool) int { return strings.Compare(a.place(), b.place()) })
	out := []Listed{}
	for _, t := range list[:min(limit, len(list))] {
		out = append(out, t.asListed())
	}
	return out, nil
}

// Listed is a tool as doors other than MCP show it.
type Listed struct {
	// Place is where it stands among all.
	Place       string
	ID          string
	Server      string
	Name        string
	Listed      string
	Title       string
	Description string
	Class       models.ToolClass
	InputSchema any
}

func (t *tool) asListed() Listed {
	return Listed{
		Place: t.place(), ID: t.id, Server: t.server, Name: t.name, Listed: t.listed, Title: titleOf(t.def), Description: t.def.Description,
		Class: t.class, InputSchema: t.def.InputSchema,
	}
}

// place is where a tool stands among all: comet's own come first.
func (t *tool) place() string {
	if t.builtin != nil {
		return fmt.Sprintf("0 %02d", t.rank)
	}
	return "1 " + t.server + " " + t.name
}

// IsPlace reports whether a text may be the Place of a tool.
func IsPlace(text string) bool { return strings.HasPrefix(text, "0 ") || strings.HasPrefix(text, "1 ") }
