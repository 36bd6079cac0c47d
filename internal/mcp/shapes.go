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

// kind is what a value of a message may be.
type kind uint8

const (
	isAnything kind = iota
	isText
	isTruth
	isNumber
	isList
	isObject
)

// says is the kind in a sentence: “params.name must be a text”.
func (k kind) says() string {
	return [...]string{"anything", "a text", "true or false", "a number", "a list", "an object"}[k]
}

// kindOf is what a valid value of JSON is; null has none.
func kindOf(raw json.RawMessage) (k kind, null bool) {
	switch raw[0] {
	case 'n':
		return isAnything, true
	case '"':
		return isText, false
	case 't', 'f':
		return isTruth, false
	case '[':
		return isList, false
	case '{':
		return isObject, false
	}
	return isNumber, false
}

// shape is what a value has to look like so that the SDK can read it. What it cannot read it
// refuses in the words of its library, which are about Go and not about the message.
type shape struct {
	kind kind
	// members are those of an object that have a shape of their own; others may be anything.
	members map[string]*shape
	// each is what is in a list, or in an object whose members have no names of their own.
	each *shape
	// needs are the members that have to be there.
	needs []string
	// words are the only texts that there may be; nil for any.
	words []string
}

// shapeOf is the shape of what the SDK reads into a type.
func shapeOf(t reflect.Type) *shape {
	switch t {
	case reflect.TypeFor[json.RawMessage]():
		return &shape{}
	case reflect.TypeFor[mcp.InputResponse](): // it is told by its members which one it is
		s := shapeOf(reflect.TypeFor[mcp.ElicitResult]())
		root := &shape{kind: isObject, members: map[string]*shape{"_meta": {kind: isObject}, "uri": {kind: isText}, "name": {kind: isText}}}
		s.members["roots"] = &shape{kind: isList, each: root}
		return s.with("action")
	}
	switch t.Kind() {
	case reflect.Pointer:
		return shapeOf(t.Elem())
	case reflect.String:
		return &shape{kind: isText}
	case reflect.Bool:
		return &shape{kind: isTruth}
	case reflect.Int, reflect.Int64, reflect.Float64:
		return &shape{kind: isNumber}
	case reflect.Slice:
		return &shape{kind: isList, each: shapeOf(t.Elem())}
	case reflect.Map:
		return &shape{kind: isObject, each: shapeOf(t.Elem())}
	case reflect.Struct:
		s := &shape{kind: isObject, members: map[string]*shape{}}
		s.addMembers(t)
		return s
	}
	return &shape{}
}

func (s *shape) addMembers(t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			s.addMembers(f.Type)
		case f.IsExported() && name != "" && name != "-":
			s.members[name] = shapeOf(f.Type)
		}
	}
}

// with is the shape of an object that has to have some members.
func (s *shape) with(needs ...string) *shape {
	s.needs = needs
	return s
}

// wrong is what is wrong with a value, in a sentence that names where; "" for nothing. null is
// the same as nothing. A member that comes twice has to be right twice.
func (s *shape) wrong(at string, raw json.RawMessage) string {
	is, null := kindOf(raw)
	switch {
	case null || s.kind == isAnything:
		return ""
	case is != s.kind:
		return fmt.Sprintf("%s must be %s", at, s.kind.says())
	case s.kind == isText && s.words != nil:
		var word string
		if err := json.Unmarshal(raw, &word); err != nil || !slices.Contains(s.words, word) {
			return fmt.Sprintf("%s must be one of %s", at, strings.Join(s.words, ", "))
		}
	case s.kind == isList && s.each.kind != isAnything:
		return s.wrongInList(at, raw)
	case s.kind == isObject && (s.members != nil || s.each != nil && s.each.kind != isAnything):
		return s.wrongInObject(at, raw)
	}
	return ""
}

func (s *shape) wrongInList(at string, raw json.RawMessage) string {
	var values []json.RawMessage
	_ = json.Unmarshal(raw, &values) // it is a list
	for i, value := range values {
		if problem := s.each.wrong(fmt.Sprintf("%s[%d]", at, i), value); problem != "" {
			return problem
		}
	}
	return ""
}

func (s *shape) wrongInObject(at string, raw json.RawMessage) string {
	missing := slices.Clone(s.needs)
	values := json.NewDecoder(bytes.NewReader(raw))
	_, _ = values.Token() // the brace; all of it is valid
	for values.More() {
		token, _ := values.Token()
		name, _ := token.(string)
		var value json.RawMessage
		if values.Decode(&value) != nil {
			return at + " cannot be read"
		}
		of := s.each
		if s.members != nil {
			of = s.members[name]
		}
		if of == nil {
			continue
		}
		if problem := of.wrong(at+"."+clip(strings.ToValidUTF8(name, "?")), value); problem != "" {
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
