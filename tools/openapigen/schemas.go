package main

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/getkin/kin-openapi/openapi3"
)

const (
	schemasRef = "#/components/schemas/"
	enumNames  = "x-enum-varnames"
)

// schemas completes every named schema from the Go types.
func (n *normaliser) schemas() {
	answers := n.onlyInAnswers()
	for _, name := range slices.Sorted(maps.Keys(n.doc.Components.Schemas)) {
		schema := n.doc.Components.Schemas[name].Value
		n.members(name, schema, answers[name])
		n.walk(name, schema)
		n.describe(name, schema)
	}
	for path, item := range n.doc.Paths.Map() {
		for method, op := range item.Operations() {
			for _, root := range roots(op) {
				if root.schema.Ref == "" {
					n.walk(method+" "+path, root.schema.Value)
				}
			}
		}
	}
}

// members applies the facts. A member of an answer is always there unless it may
// be left out, and a nil pointer in it is null; what a request must have is said
// by its validation tags.
func (n *normaliser) members(name string, schema *openapi3.Schema, answer bool) {
	for _, m := range n.facts[name] {
		ref := schema.Properties[m.name]
		if ref == nil {
			continue
		}
		if answer && !m.optional && !slices.Contains(schema.Required, m.name) {
			schema.Required = append(schema.Required, m.name)
		}
		if answer && m.pointer && !m.optional {
			n.makeNullable(ref)
		}
		if ref.Ref == "" {
			setFormat(ref.Value, m.format)
			setBounds(ref.Value, m)
			if !answer {
				describeDefault(ref.Value)
			}
		}
	}
}

// describe adds the descriptions that the annotations leave out: that of the type, and those of
// members that mean the same everywhere. A reference is described by its target.
func (n *normaliser) describe(name string, schema *openapi3.Schema) {
	if schema.Description == "" {
		schema.Description = n.texts[name]
	}
	for member, text := range map[string]string{
		"agent_id":   "The agent's id.",
		"created_at": "When it was created.",
		"created_by": "Name of the token that created it.",
		"updated_at": "When it was last changed.",
	} {
		if ref := schema.Properties[member]; ref != nil && ref.Ref == "" && ref.Value.Description == "" {
			ref.Value.Description = text
		}
	}
}

// describeDefault moves the default of a request member into its description: TypeScript
// generators make a member with a default required.
func describeDefault(s *openapi3.Schema) {
	if s.Default == nil {
		return
	}
	s.Description = strings.TrimSpace(fmt.Sprintf("%s The default is `%v`.", s.Description, s.Default))
	s.Default = nil
}

func setFormat(s *openapi3.Schema, format string) {
	switch {
	case s.Type.Is("array") && s.Items.Ref == "":
		setFormat(s.Items.Value, format)
	case s.Type.Is("object") && s.AdditionalProperties.Schema != nil && s.AdditionalProperties.Schema.Ref == "":
		setFormat(s.AdditionalProperties.Schema.Value, format)
	case s.Format != "":
	case format == "int64" && s.Type.Is("integer"),
		format == "double" && s.Type.Is("number"),
		format == "date-time" && s.Type.Is("string"):
		s.Format = format
	}
}

func setBounds(s *openapi3.Schema, m member) {
	if !s.Type.Is("array") {
		return
	}
	if m.minItems != nil {
		s.MinItems = *m.minItems
	}
	if m.maxItems != nil {
		s.MaxItems = m.maxItems
	}
}

func (n *normaliser) makeNullable(ref *openapi3.SchemaRef) {
	if ref.Ref != "" {
		ref.Value = &openapi3.Schema{AllOf: openapi3.SchemaRefs{{Ref: ref.Ref}}}
		ref.Ref = ""
	}
	ref.Value.Nullable = true
}

// walk cleans a schema and the unnamed ones inside it.
func (n *normaliser) walk(where string, s *openapi3.Schema) {
	delete(s.Extensions, "x-enum-comments")
	delete(s.Extensions, "x-enum-descriptions")
	if names, ok := s.Extensions[enumNames].([]any); ok {
		s.Extensions[enumNames] = withoutCommonWord(names)
	}
	for _, ref := range children(s) {
		if ref.Ref == "" {
			n.walk(where, ref.Value)
			n.collapse(ref)
		}
	}
	if s.Nullable && s.Type == nil && len(s.AllOf) == 1 {
		// OpenAPI 3.0.3 gives nullable a meaning only beside a type.
		s.Type = n.target(s.AllOf[0]).Type
	}
	if s.Type.Is("object") && len(s.Properties) == 0 && len(s.AllOf) == 0 && s.AdditionalProperties.Schema == nil {
		s.AdditionalProperties.Has = new(true) // otherwise TypeScript generators allow no members
	}
	if s.Nullable && s.Type == nil {
		n.reject("%s: a nullable member without a type", where)
	}
}

// collapse turns an allOf around a single reference that says nothing new back
// into the reference.
func (n *normaliser) collapse(ref *openapi3.SchemaRef) {
	s := ref.Value
	if len(s.AllOf) != 1 || s.AllOf[0].Ref == "" {
		return
	}
	target := n.target(s.AllOf[0])
	if target.Enum != nil {
		s.Enum, s.Min, s.Max = nil, nil, nil // the target says it
	}
	bare := *s
	bare.AllOf, bare.Extensions = nil, nil
	if len(s.Extensions) == 0 && reflect.DeepEqual(clean(bare), clean(openapi3.Schema{})) {
		ref.Ref, ref.Value = s.AllOf[0].Ref, target
	}
}

// clean gives the members that the conversion sets to something empty the same
// emptiness everywhere.
func clean(s openapi3.Schema) openapi3.Schema {
	s.Properties, s.ExclusiveMin, s.ExclusiveMax = nil, openapi3.ExclusiveBound{}, openapi3.ExclusiveBound{}
	return s
}

func (n *normaliser) target(ref *openapi3.SchemaRef) *openapi3.Schema {
	if ref.Ref == "" {
		return ref.Value
	}
	if t := n.doc.Components.Schemas[strings.TrimPrefix(ref.Ref, schemasRef)]; t != nil {
		return t.Value
	}
	n.reject("%s is referred to but not there", ref.Ref)
	return &openapi3.Schema{}
}

// children are the schemas directly inside s, in a fixed order.
func children(s *openapi3.Schema) []*openapi3.SchemaRef {
	var out []*openapi3.SchemaRef
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		out = append(out, s.Properties[name])
	}
	if s.Items != nil {
		out = append(out, s.Items)
	}
	if s.AdditionalProperties.Schema != nil {
		out = append(out, s.AdditionalProperties.Schema)
	}
	out = append(out, s.AllOf...)
	return append(out, s.OneOf...)
}

// root is a schema an operation names, in its request or in an answer.
type root struct {
	schema  *openapi3.SchemaRef
	request bool
}

func roots(op *openapi3.Operation) []root {
	var out []root
	add := func(content openapi3.Content, request bool) {
		for _, media := range content {
			if media.Schema != nil {
				out = append(out, root{media.Schema, request})
			}
		}
	}
	if op.RequestBody != nil {
		add(op.RequestBody.Value.Content, true)
	}
	for _, r := range op.Responses.Map() {
		add(r.Value.Content, false)
	}
	return out
}

// onlyInAnswers names the schemas no request body leads to.
func (n *normaliser) onlyInAnswers() map[string]bool {
	asked := map[string]bool{}
	var visit func(*openapi3.SchemaRef)
	visit = func(ref *openapi3.SchemaRef) {
		if ref.Ref != "" {
			if asked[ref.Ref] {
				return
			}
			asked[ref.Ref] = true
		}
		for _, child := range children(n.target(ref)) {
			visit(child)
		}
	}
	for _, item := range n.doc.Paths.Map() {
		for _, op := range item.Operations() {
			for _, root := range roots(op) {
				if root.request {
					visit(root.schema)
				}
			}
		}
	}
	answers := map[string]bool{}
	for name := range n.doc.Components.Schemas {
		answers[name] = !asked[schemasRef+name]
	}
	return answers
}

// withoutCommonWord turns LevelSystem, LevelAssistant, … into System, Assistant, …:
// generators put the type's name before each value themselves.
func withoutCommonWord(names []any) []any {
	first, _ := firstOf(names).(string)
	word := first
	for i, r := range first {
		if i > 0 && unicode.IsUpper(r) {
			word = first[:i]
			break
		}
	}
	short := make([]any, len(names))
	for i, n := range names {
		rest, found := strings.CutPrefix(n.(string), word)
		if !found || rest == "" {
			return names
		}
		short[i] = rest
	}
	return short
}
