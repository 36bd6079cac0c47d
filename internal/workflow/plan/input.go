package plan

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"comet/internal/errs"
	"comet/internal/input"
	"comet/internal/input/schema"
)

// inputName is the name of the input in references: $input.path.
const inputName = "input"

// NewTemplate is New for steps that may refer to an input. No step can have the id “input”.
func NewTemplate(steps []Step, at string) (*Plan, error) { return newPlan(0, steps, at, true) }

// Bind sets the input of a template. The error lists the references to parts that the input does not have, with JSON
// pointers below at.
func (p *Plan) Bind(value json.RawMessage, at string) error {
	if err := p.SetInput(value); err != nil {
		return err
	}
	var missing errs.Violations
	for i := range p.Steps {
		for _, text := range textsOf(p.Steps[i].Arguments) {
			for _, r := range referencesIn(text, true) {
				if _, err := memberAt(p.input, r); r.input && !r.escaped && err != nil && !missing.Has(at+pointerOf(r.path)) {
					missing.Add(errs.InvalidRequest, at+pointerOf(r.path), "required", "the step %q needs %s", p.Steps[i].ID, errs.From(err).Detail)
				}
			}
		}
	}
	return missing.Err()
}

// SetInput is Bind without the check of the references.
func (p *Plan) SetInput(value json.RawMessage) (err error) {
	p.input, err = decode(value)
	return err
}

// pointerOf returns a path as a JSON pointer.
func pointerOf(path string) (pointer string) {
	for _, part := range pathParts(path) {
		if name, err := strconv.Unquote(part); err == nil {
			part = name
		}
		pointer += "/" + input.Escape(part)
	}
	return pointer
}

// MaxSchema limits the schema of an input, in bytes.
const MaxSchema = 64 << 10

// Schema describes the input of a template. It has no references.
type Schema struct {
	root     *jsonschema.Schema
	resolved map[*jsonschema.Schema]*jsonschema.Resolved
}

// ParseSchema parses a JSON Schema. The error is a violation with the JSON pointer at.
func ParseSchema(text json.RawMessage, at string) (*Schema, error) {
	if len(text) > MaxSchema {
		return nil, input.Violated(at, "max", "the schema must have at most %d bytes, not %d", MaxSchema, len(text))
	}
	s := &Schema{root: &jsonschema.Schema{}, resolved: map[*jsonschema.Schema]*jsonschema.Resolved{}}
	if err := json.Unmarshal(text, s.root); err != nil {
		return nil, input.Violated(at, "schema", "the value is not a JSON Schema: %s", input.Clip(err.Error()))
	}
	if s.resolve(s.root) == nil {
		return nil, input.Violated(at, "schema", "the schema is invalid, or contains $ref or $dynamicRef, which are not supported")
	}
	return s, nil
}

// Complete returns an input, an object, with the defaults of the schema in place of missing members. The error lists the
// violations of the schema, with JSON pointers below at.
func (s *Schema) Complete(value json.RawMessage, at string) (json.RawMessage, error) {
	members := map[string]json.RawMessage{}
	if err := json.Unmarshal(value, &members); err != nil {
		return nil, err
	}
	for name, property := range s.root.Properties {
		if _, given := members[name]; !given && property != nil && property.Default != nil {
			members[name] = property.Default
		}
	}
	value, err := encode(members)
	if err != nil {
		return nil, err
	}
	var decoded any
	if err := json.Unmarshal(value, &decoded); err != nil {
		return nil, err
	}
	var found errs.Violations
	s.check(s.root, decoded, at, &found)
	return value, found.Err()
}

// maxViolations limits the violations of an input that are listed.
const maxViolations = 20

// check adds the violations of a value, or those of its members if they explain why the value is invalid.
func (s *Schema) check(schema *jsonschema.Schema, value any, at string, found *errs.Violations) {
	r := s.resolve(schema)
	if r == nil || len(*found) >= maxViolations {
		return
	}
	err := r.Validate(value)
	if err == nil {
		return
	}
	before := len(*found)
	switch value := value.(type) {
	case map[string]any:
		for _, name := range schema.Required {
			if _, given := value[name]; !given {
				found.Add(errs.InvalidRequest, at+"/"+input.Escape(name), "required", "%s is required", input.Clip(name))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if inner := schema.Properties[name]; inner != nil {
				s.check(inner, value[name], at+"/"+input.Escape(name), found)
			} else if more := schema.AdditionalProperties; more == nil || len(schema.PatternProperties) > 0 {
				continue
			} else if r := s.resolve(more); r != nil && r.Validate(value[name]) != nil {
				found.Add(errs.InvalidRequest, at+"/"+input.Escape(name), "unexpected", "%s is not allowed", input.Clip(name))
			}
		}
	case []any:
		for i := range value {
			if schema.Items != nil {
				s.check(schema.Items, value[i], at+"/"+strconv.Itoa(i), found)
			}
		}
	}
	if len(*found) == before {
		_, detail, _ := strings.Cut(err.Error(), "validating root: ")
		found.Add(errs.InvalidRequest, at, "schema", "the value does not match the schema: %s", input.Clip(detail))
	}
}

// resolve returns a part of the schema for validation, nil if it cannot be used.
func (s *Schema) resolve(part *jsonschema.Schema) *jsonschema.Resolved {
	r, known := s.resolved[part]
	if !known {
		r = schema.Resolve(part.CloneSchemas())
		s.resolved[part] = r
	}
	return r
}
