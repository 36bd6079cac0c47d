package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// jsonKind is what a value of a message may be.
type jsonKind uint8

const (
	kindAny jsonKind = iota
	kindString
	kindBool
	kindNumber
	kindArray
	kindObject
)

// describe is the kind in a sentence: “params.name must be a text”.
func (k jsonKind) describe() string {
	return [...]string{"anything", "a text", "true or false", "a number", "a list", "an object"}[k]
}

// kindOf is what a valid value of JSON is; null has none.
func kindOf(raw json.RawMessage) (k jsonKind, null bool) {
	switch raw[0] {
	case 'n':
		return kindAny, true
	case '"':
		return kindString, false
	case 't', 'f':
		return kindBool, false
	case '[':
		return kindArray, false
	case '{':
		return kindObject, false
	}
	return kindNumber, false
}

// schema is what a value has to look like so that the SDK can read it. What it cannot read it
// refuses in the words of its library, which are about Go and not about the message.
type schema struct {
	kind jsonKind
	// properties are those of an object that have a shape of their own; others may be anything.
	properties map[string]*schema
	// items is what is in a list, or in an object whose members have no names of their own.
	items *schema
	// required are the members that have to be there.
	required []string
	// enum are the only texts that there may be; nil for any.
	enum []string
}

// schemaOf is the shape of what the SDK reads into a type.
func schemaOf(t reflect.Type) *schema {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &schema{}
	case reflect.TypeFor[mcp.InputResponse](): // it is told by its members which one it is
		s := schemaOf(reflect.TypeFor[mcp.ElicitResult]())
		root := &schema{kind: kindObject, properties: map[string]*schema{"_meta": {kind: kindObject}, "uri": {kind: kindString}, "name": {kind: kindString}}}
		s.properties["roots"] = &schema{kind: kindArray, items: root}
		return s.require("action")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.String:
		return &schema{kind: kindString}
	case reflect.Bool:
		return &schema{kind: kindBool}
	case reflect.Int, reflect.Int64, reflect.Float64:
		return &schema{kind: kindNumber}
	case reflect.Slice:
		return &schema{kind: kindArray, items: schemaOf(t.Elem())}
	case reflect.Map:
		return &schema{kind: kindObject, items: schemaOf(t.Elem())}
	case reflect.Struct:
		s := &schema{kind: kindObject, properties: map[string]*schema{}}
		s.addProperties(t)
		return s
	}
	return &schema{}
}

func (s *schema) addProperties(t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addProperties(f.Type)
		case f.IsExported() && name != "" && name != "-":
			s.properties[name] = schemaOf(f.Type)
		}
	}
}

// require is the shape of an object that has to have some members.
func (s *schema) require(needs ...string) *schema {
	s.required = needs
	return s
}

// check is what is wrong with a value, in a sentence that names where; "" for nothing. null is
// the same as nothing. A member that comes twice has to be right twice.
func (s *schema) check(at string, raw json.RawMessage) string {
	is, null := kindOf(raw)
	switch {
	case null || s.kind == kindAny:
		return ""
	case is != s.kind:
		return fmt.Sprintf("%s must be %s", at, s.kind.describe())
	case s.kind == kindString && s.enum != nil:
		var word string
		if err := json.Unmarshal(raw, &word); err != nil || !slices.Contains(s.enum, word) {
			return fmt.Sprintf("%s must be one of %s", at, strings.Join(s.enum, ", "))
		}
	case s.kind == kindArray && s.items.kind != kindAny:
		return s.checkArray(at, raw)
	case s.kind == kindObject && (s.properties != nil || s.items != nil && s.items.kind != kindAny):
		return s.checkObject(at, raw)
	}
	return ""
}

func (s *schema) checkArray(at string, raw json.RawMessage) string {
	var values []json.RawMessage
	_ = json.Unmarshal(raw, &values) // it is a list
	for i, value := range values {
		if problem := s.items.check(fmt.Sprintf("%s[%d]", at, i), value); problem != "" {
			return problem
		}
	}
	return ""
}

func (s *schema) checkObject(at string, raw json.RawMessage) string {
	missing := slices.Clone(s.required)
	values := json.NewDecoder(bytes.NewReader(raw))
	_, _ = values.Token() // the brace; all of it is valid
	for values.More() {
		token, _ := values.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if values.Decode(&value) != nil {
			return at + " cannot be read"
		}
		of := s.items
		if s.properties != nil {
			of = s.properties[name]
		}
		if of == nil {
			continue
		}
		if problem := of.check(at+"."+clip(strings.ToValidUTF8(name, "?")), value); problem != "" {
			return problem
		}
		if string(value) != "null" {
			missing = slices.DeleteFunc(missing, func(other string) bool { return other == name })
		}
	}
	if len(missing) > 0 {
		return fmt.Sprintf("%s.%s is missing", at, missing[0])
	}
	return ""
}
