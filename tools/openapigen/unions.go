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
			ref.Value = &openapi3.Schema{Description: ref.Value.Description, OneOf: oneOf}
		}
	}
}
