package intent

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"comet/internal/input"
	"comet/internal/workflow/plan"
	"comet/models"
)

// maxFields limits the fields of a tool.
const maxFields = 200

// Tool is a tool that may serve a clause.
type Tool struct {
	// ID is serverId:toolName.
	ID, Description string
	InputSchema     json.RawMessage
	// Class is "" for an unclassified tool, which counts as destructive.
	Class models.ToolClass
	// Score is the score of the search and PageRank the rank in the usage graph, both in 0…1.
	Score, PageRank float64
}

// form has the arguments of a tool as fields to fill in.
type form struct {
	lexicon
	*clause
	tool     *Tool
	id       []string             // words of the id of the tool
	result   string               // reference to the result of the step before, "" without one
	resolved *jsonschema.Resolved // nil for a schema that cannot be used
	root     *group
	fields   []*field
	used     map[int]bool // tokens that are arguments
	named    map[int]bool // words that name an argument
	pronoun  string       // refers to the result, "" for none
	refers   bool         // an argument is the result
}

// group is the arguments or an object in them, which may be the only member of a list.
type group struct {
	parent *group
	name   string
	at     string // JSON pointer
	list   bool
	needed bool
	object map[string]any
}

// field is an argument, or a member of one.
type field struct {
	*group
	name   string
	words  []string // of the name
	short  string   // "issue" for issue_number and "type" for entityType, "" where two fields have it
	schema *jsonschema.Schema
	list   bool // of texts
	needed bool // within its group
	set    bool
}

// addFields adds the fields of an object. A member of the context replaces the fields of an inner object.
func (f *form) addFields(s *jsonschema.Schema, g *group, context map[string]json.RawMessage) {
	names := slices.Concat(s.Required, slices.Sorted(maps.Keys(s.Properties)))
	for i, name := range names {
		if slices.Contains(names[:i], name) || len(f.fields) >= maxFields {
			continue
		}
		added := &field{group: g, name: name, words: wordsOf(name), schema: variant(s.Properties[name]), needed: slices.Contains(s.Required, name)}
		object, isList := added.schema, typeOf(added.schema) == "array"
		if isList {
			object = variant(added.schema.Items)
			added.list = object == nil || typeOf(object) == "string"
		}
		if object != nil && len(object.Properties) > 0 && (g != f.root || !added.putFrom(context)) {
			inner := &group{parent: g, name: name, at: added.pointer(), list: isList, needed: added.needed, object: map[string]any{}}
			if isList {
				inner.at += "/0"
			}
			f.addFields(object, inner, context)
			continue
		}
		f.fields = append(f.fields, added)
	}
}

func (f *form) setShortNames() {
	count := map[string]int{}
	for _, field := range f.fields {
		n := len(field.words)
		if n > 1 && f.lexicon["generic"][field.words[n-1]] {
			n--
		}
		if n > 0 {
			field.short = field.words[n-1]
			count[field.short]++
		}
	}
	for _, field := range f.fields {
		if count[field.short] > 1 && len(field.words) > 1 {
			field.short = ""
		}
	}
}

// put sets the field to a valid value. A list can have one text as value.
func (f *field) put(value any) bool {
	if f.schema == nil {
		return false
	}
	if text, ok := value.(string); ok && f.list {
		value = []any{text}
	}
	r := plan.ResolveSchema(f.schema.CloneSchemas())
	if r == nil || r.Validate(value) != nil {
		return false
	}
	f.set = true
	f.group.put(f.name, value)
	return true
}

func (g *group) put(name string, value any) {
	if g.parent != nil && len(g.object) == 0 {
		var object any = g.object
		if g.list {
			object = []any{g.object}
		}
		g.parent.put(g.name, object)
	}
	g.object[name] = value
}

// putFrom sets the field to the member of its name that the context has.
func (f *field) putFrom(context map[string]json.RawMessage) bool {
	raw, given := context[f.name]
	var value any
	if !given || referencePattern.Match(raw) || json.Unmarshal(raw, &value) != nil || value == nil || !f.put(value) {
		return false
	}
	f.object[f.name] = raw // it has all digits of numbers
	return true
}

func (f *field) isEnum() bool { return f.schema != nil && f.schema.Enum != nil }

func (f *field) pointer() string { return f.at + "/" + input.Escape(f.name) }

// required reports whether the arguments are incomplete without the field.
func (f *field) required() bool {
	for g := f.group; g != nil; g = g.parent {
		if !g.needed && len(g.object) == 0 {
			return false
		}
	}
	return f.needed
}

func (f *form) missing() []*field {
	return slices.DeleteFunc(slices.Clone(f.fields), func(field *field) bool { return field.set || !field.required() })
}

// valid reports whether the arguments are valid.
func (f *form) valid() bool {
	var arguments any
	return f.resolved != nil && json.Unmarshal(encode(f.root.object), &arguments) == nil && f.resolved.Validate(arguments) == nil
}

// variant returns the schema itself, or its only variant that is not null.
func variant(s *jsonschema.Schema) *jsonschema.Schema {
	if s == nil || s.Type != "" || s.Types != nil {
		return s
	}
	all := slices.DeleteFunc(slices.Concat(s.AnyOf, s.OneOf), func(v *jsonschema.Schema) bool { return v == nil || v.Type == "null" })
	if len(all) == 1 {
		return all[0]
	}
	return s
}

// typeOf returns the type of a schema apart from null, "" for any or several.
func typeOf(s *jsonschema.Schema) string {
	if s == nil {
		return ""
	}
	types := slices.DeleteFunc(slices.Clone(s.Types), func(t string) bool { return t == "null" })
	if len(types) == 1 {
		return types[0]
	}
	return s.Type
}

// wordsOf splits a name into words in lower case.
func wordsOf(name string) []string {
	var out strings.Builder
	before := ' '
	for _, r := range name {
		if r >= 'A' && r <= 'Z' && before >= 'a' && before <= 'z' {
			out.WriteByte(' ')
		}
		out.WriteRune(r)
		before = r
	}
	return strings.FieldsFunc(plain(out.String()), func(r rune) bool { return strings.ContainsRune("_-:. ", r) })
}

// encode encodes what was decoded from JSON.
func encode(v any) json.RawMessage {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // it cannot fail
	return bytes.TrimSpace(out.Bytes())
}
