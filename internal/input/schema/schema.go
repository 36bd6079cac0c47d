// Package schema resolves the JSON schemas of tools, which are not trusted, and validates values with them.
package schema

import (
	"encoding/json"
	"regexp"

	"github.com/google/jsonschema-go/jsonschema"
)

var reference = regexp.MustCompile(`"\$(?:ref|dynamicRef)"`)

// Resolve returns a schema for validation, or nil if it cannot be used: the library rejects it, or it has references, because
// the library overflows the stack if a schema refers to itself.
func Resolve(s *jsonschema.Schema) *jsonschema.Resolved {
	text, err := json.Marshal(s)
	if err != nil || reference.Match(text) {
		return nil
	}
	r, _ := s.Resolve(nil) // nil with an error
	return r
}

// Of is Resolve for a schema that was decoded from JSON as any type.
func Of(decoded any) *jsonschema.Resolved {
	var s *jsonschema.Schema
	text, err := json.Marshal(decoded)
	if err != nil || json.Unmarshal(text, &s) != nil || s == nil {
		return nil
	}
	return Resolve(s)
}

// Validate returns an error if JSON does not match a schema. A nil schema matches everything.
func Validate(r *jsonschema.Resolved, text json.RawMessage) error {
	if r == nil {
		return nil
	}
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return err
	}
	return r.Validate(value)
}
