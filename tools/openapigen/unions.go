package main

import (
	"maps"
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// oneOfMember marks the members of a Go struct that stands for alternatives: what
// goes over the wire is one member's value, without the struct around it.
const oneOfMember = "x-one-of"

// unions turns each such struct into a oneOf of its members' types, in the order of
// the source.
func (n *normaliser) unions() {
	for _, name := range slices.Sorted(maps.Keys(n.doc.Components.Schemas)) {
		ref := n.doc.Components.Schemas[name]
		var oneOf openapi3.SchemaRefs
		for _, m := range n.facts[name] {
			member := ref.Value.Properties[m.name]
			if member == nil || member.Value == nil || member.Value.Extensions[oneOfMember] == nil {
				continue
			}
			if len(member.Value.AllOf) != 1 || member.Value.AllOf[0].Ref == "" {
				n.reject("%s.%s: %s needs a struct", name, m.name, oneOfMember)
				continue
			}
			oneOf = append(oneOf, member.Value.AllOf[0])
		}
		switch {
		case len(oneOf) == 0:
		case len(oneOf) != len(ref.Value.Properties):
			n.reject("%s: either all members are %s or none", name, oneOfMember)
		default:
			ref.Value = &openapi3.Schema{Description: ref.Value.Description, OneOf: oneOf, Discriminator: n.discriminator(oneOf)}
		}
	}
}

// discriminator returns the member that distinguishes alternatives: each must have it with a
// different constant value. It is nil if there is no such member.
func (n *normaliser) discriminator(oneOf openapi3.SchemaRefs) *openapi3.Discriminator {
	for _, name := range slices.Sorted(maps.Keys(n.target(oneOf[0]).Properties)) {
		mapping := map[string]openapi3.MappingRef{}
		for _, alternative := range oneOf {
			if value, ok := constant(n.target(alternative), name); ok {
				mapping[value] = openapi3.MappingRef{Ref: alternative.Ref}
			}
		}
		if len(mapping) == len(oneOf) {
			return &openapi3.Discriminator{PropertyName: name, Mapping: mapping}
		}
	}
	return nil
}

// constant returns the one value that a member must have, ok is false for another.
func constant(s *openapi3.Schema, name string) (value string, ok bool) {
	m := s.Properties[name]
	if m == nil || m.Value == nil || len(m.Value.Enum) != 1 || !slices.Contains(s.Required, name) {
		return "", false
	}
	value, ok = m.Value.Enum[0].(string)
	return value, ok
}
