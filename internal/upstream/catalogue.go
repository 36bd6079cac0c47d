package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"comet/internal/input"
)

// catalogue holds what an upstream offers, each list sorted by name. It is replaced, never changed.
type catalogue struct {
	tools     list[*mcp.Tool]
	resources list[*mcp.Resource]
	templates list[*mcp.ResourceTemplate]
	prompts   list[*mcp.Prompt]
	// names are the names of the tools; true stands for a tool with arguments that are sent as headers
	// too (MCP 2026-07-28, x-mcp-header).
	names map[string]bool
}

// list is one list of a catalogue, with warnings about the items that were left out.
type list[T any] struct {
	items    []T
	warnings []string
}

func (c *catalogue) warnings() []string {
	return slices.Concat(c.tools.warnings, c.resources.warnings, c.templates.warnings, c.prompts.warnings)
}

// readCatalogue returns a catalogue with new lists of the given kinds and the other lists of old.
// It does not request a list that the upstream does not have according to its capabilities. An
// error in any list but the tools becomes a warning.
func (s *session) readCatalogue(ctx context.Context, old *catalogue, kinds ...ChangeKind) (*catalogue, error) {
	out := *old
	has := cmp.Or(s.client.InitializeResult().Capabilities, &mcp.ServerCapabilities{})
	if slices.Contains(kinds, Tools) && has.Tools != nil {
		tools, err := readList(ctx, s, "tool", s.toolPage, func(t *mcp.Tool) string { return t.Name }, checkTool)
		if err != nil {
			return nil, err
		}
		out.tools, out.names = tools, map[string]bool{}
		for _, t := range tools.items {
			schema, err := json.Marshal(t.InputSchema)
			out.names[t.Name] = err != nil || bytes.Contains(schema, []byte(`"x-mcp-header"`))
		}
	}
	if slices.Contains(kinds, Resources) && has.Resources != nil {
		out.resources = orWarning(readList(ctx, s, "resource", s.resourcePage, func(r *mcp.Resource) string { return r.URI }, nil))
		out.templates = orWarning(readList(ctx, s, "resource template", s.templatePage,
			func(r *mcp.ResourceTemplate) string { return r.URITemplate }, nil))
	}
	if slices.Contains(kinds, Prompts) && has.Prompts != nil {
		out.prompts = orWarning(readList(ctx, s, "prompt", s.promptPage, func(p *mcp.Prompt) string { return p.Name }, nil))
	}
	return &out, ctx.Err()
}

func orWarning[T any](l list[T], err error) list[T] {
	if err != nil {
		l.warnings = append(l.warnings, err.Error())
	}
	return l
}

func (s *session) toolPage(ctx context.Context, cursor string) ([]*mcp.Tool, string, error) {
	res, err := s.client.ListTools(ctx, &mcp.ListToolsParams{Cursor: cursor})
	return pageOf(res, err, func(r *mcp.ListToolsResult) ([]*mcp.Tool, string) { return r.Tools, r.NextCursor })
}

func (s *session) resourcePage(ctx context.Context, cursor string) ([]*mcp.Resource, string, error) {
	res, err := s.client.ListResources(ctx, &mcp.ListResourcesParams{Cursor: cursor})
	return pageOf(res, err, func(r *mcp.ListResourcesResult) ([]*mcp.Resource, string) { return r.Resources, r.NextCursor })
}

func (s *session) templatePage(ctx context.Context, cursor string) ([]*mcp.ResourceTemplate, string, error) {
	res, err := s.client.ListResourceTemplates(ctx, &mcp.ListResourceTemplatesParams{Cursor: cursor})
	if rpc, ok := errors.AsType[*jsonrpc.Error](err); ok && rpc.Code == jsonrpc.CodeMethodNotFound {
		return nil, "", nil // many servers have resources without templates
	}
	return pageOf(res, err, func(r *mcp.ListResourceTemplatesResult) ([]*mcp.ResourceTemplate, string) {
		return r.ResourceTemplates, r.NextCursor
	})
}

func (s *session) promptPage(ctx context.Context, cursor string) ([]*mcp.Prompt, string, error) {
	res, err := s.client.ListPrompts(ctx, &mcp.ListPromptsParams{Cursor: cursor})
	return pageOf(res, err, func(r *mcp.ListPromptsResult) ([]*mcp.Prompt, string) { return r.Prompts, r.NextCursor })
}

func pageOf[R, T any](res *R, err error, of func(*R) ([]T, string)) (items []T, next string, _ error) {
	if err == nil {
		items, next = of(res)
	}
	return items, next, err
}

// readList reads a list page by page, within the limits.
func readList[T any](ctx context.Context, s *session, what string, page func(context.Context, string) ([]*T, string, error),
	name func(*T) string, check func(*T) error,
) (list[*T], error) {
	c := &collector[T]{what: what, name: name, check: check, hide: s.launch.secrets.mask, seen: map[string]bool{}}
	for cursor, pages := "", 0; ; pages++ {
		if pages == MaxPages {
			c.warn("the list of %ss has more than %d pages; the others were left out", what, MaxPages)
			break
		}
		var next string
		items, err := guard(func() (items []*T, err error) {
			ctx, cancel := context.WithTimeout(ctx, s.launch.timeout())
			defer cancel()
			items, next, err = page(ctx, cursor)
			return items, err
		})
		if err != nil {
			return list[*T]{}, fmt.Errorf("the list of %ss cannot be read: %s", what, s.launch.secrets.mask(err.Error()))
		}
		if !c.add(items) || next == "" {
			break
		}
		if next == cursor {
			c.warn("the list of %ss repeats the cursor of page %d", what, pages+1)
			break
		}
		cursor = next
	}
	return c.sorted(), nil
}

// collector collects the valid items of a list and warnings about the others.
type collector[T any] struct {
	list[*T]
	what       string
	name       func(*T) string
	check      func(*T) error
	hide       func(string) string
	seen       map[string]bool
	size       int
	suppressed int // number of warnings over maxWarnings
}

const maxWarnings = 20

func (c *collector[T]) warn(format string, args ...any) {
	if len(c.warnings) == maxWarnings {
		c.suppressed++
		return
	}
	c.warnings = append(c.warnings, c.hide(fmt.Sprintf(format, args...)))
}

// add appends items and reports whether the list may grow further.
func (c *collector[T]) add(items []*T) bool {
	for _, item := range items {
		if item == nil {
			c.warn("a %s that is null was left out", c.what)
			continue
		}
		name := c.name(item)
		text, _ := json.Marshal(item) // it has just been decoded
		size := len(text)
		switch err := c.checkItem(name, item, size); {
		case len(c.items) == MaxTools:
			c.warn("there are more than %d %ss; the others were left out", MaxTools, c.what)
			return false
		case c.size+size > maxCatalogue:
			c.warn("the list of %ss is larger than %d bytes; the rest was left out", c.what, maxCatalogue)
			return false
		case err != nil:
			c.warn("the %s %s was left out: %s", c.what, input.Quote(name), err)
			continue
		}
		c.seen[name] = true
		c.size += size
		c.items = append(c.items, item)
	}
	return true
}

func (c *collector[T]) checkItem(name string, item *T, size int) error {
	switch {
	case name == "":
		return errors.New("it has no name")
	case c.seen[name]:
		return errors.New("an earlier one has the same name")
	case !utf8.ValidString(name):
		return errors.New("its name is not valid UTF-8")
	case size > maxItem:
		return fmt.Errorf("it is larger than %d bytes", maxItem)
	case c.check != nil:
		return c.check(item)
	}
	return nil
}

func (c *collector[T]) sorted() list[*T] {
	slices.SortStableFunc(c.items, func(a, b *T) int { return cmp.Compare(c.name(a), c.name(b)) })
	if c.suppressed > 0 {
		c.warnings = append(c.warnings, fmt.Sprintf("and %d more like these", c.suppressed))
	}
	return c.list
}

// checkTool returns the reason why a tool cannot be used, nil for a usable tool.
func checkTool(t *mcp.Tool) error {
	if len(t.Name) > MaxName {
		return fmt.Errorf("its name is longer than %d bytes", MaxName)
	}
	if t.InputSchema == nil {
		return errors.New("it has no input schema")
	}
	for name, schema := range map[string]any{"input": t.InputSchema, "output": t.OutputSchema} {
		if err := checkRoot(schema); err != nil {
			return fmt.Errorf("its %s schema is not a JSON Schema of an object: %w", name, err)
		}
	}
	return nil
}

// checkRoot checks a whole schema, which MCP requires to describe an object. nil is no schema.
func checkRoot(schema any) error {
	if schema == nil {
		return nil
	}
	object, ok := schema.(map[string]any)
	if !ok {
		return errors.New("it is not an object")
	}
	if kind, given := object["type"]; given && kind != "object" {
		return errors.New(`its type is not "object"`)
	}
	return checkSchema(object, 0)
}

const maxSchemaDepth = 64

// checkSchema checks the form of the keywords that hold schemas, types and names, in any draft.
// It does not check patterns, numbers and references, which differ between drafts and libraries:
// google/jsonschema-go, for example, rejects the boolean exclusiveMinimum of draft 4 and the
// look-ahead of ECMAScript patterns, and accepts unknown types.
func checkSchema(schema any, depth int) error {
	if _, isBool := schema.(bool); isBool {
		return nil
	}
	object, ok := schema.(map[string]any)
	switch {
	case !ok:
		return errors.New("a schema in it is neither an object nor true or false")
	case depth > maxSchemaDepth:
		return fmt.Errorf("it is nested more than %d deep", maxSchemaDepth)
	}
	for keyword, value := range object {
		if err := checkKeyword(keyword, value, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func checkKeyword(keyword string, value any, depth int) error {
	list, isList := value.([]any)
	if !isList {
		list = []any{value}
	}
	switch keyword {
	case "type":
		for _, kind := range list {
			switch kind {
			case "object", "array", "string", "number", "integer", "boolean", "null":
			default:
				return fmt.Errorf("%s is not a type", input.Quote(fmt.Sprint(kind)))
			}
		}
	case "required":
		for _, name := range list {
			if _, ok := name.(string); !ok || !isList {
				return errors.New("required is not a list of names")
			}
		}
	case "properties", "patternProperties", "$defs", "definitions", "dependentSchemas":
		members, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is not an object", keyword)
		}
		for name, schema := range members {
			if err := checkSchema(schema, depth); err != nil {
				return fmt.Errorf("%s: %w", input.Clip(name), err)
			}
		}
	case "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames", "unevaluatedProperties",
		"allOf", "anyOf", "oneOf", "prefixItems":
		for _, schema := range list {
			if err := checkSchema(schema, depth); err != nil {
				return err
			}
		}
	}
	return nil
}
