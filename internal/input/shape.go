package input

import (
	"encoding"
	stdjson "encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// shapeKind is the kind of JSON value that a Go type is decoded from.
type shapeKind uint8

const (
	anyValue shapeKind = iota // any value, or a type with its own decoding
	object                    // a struct
	dictionary
	list
	stringValue
	dateTime
	boolean
	integer
	unsigned
	float
)

// shape describes the values that a Go type is decoded from.
type shape struct {
	kind     shapeKind
	nullable bool
	bits     int          // of numbers
	element  reflect.Type // of lists and dictionaries; nil is any
	members  map[string]reflect.Type
	names    []string // of members, in order
}

// noun describes the shape in a sentence.
func (s *shape) noun() string {
	switch s.kind {
	case object, dictionary:
		return "an object"
	case list:
		return "an array"
	case stringValue:
		return "a string"
	case dateTime:
		return "a date and time such as 2026-01-10T15:30:00Z (RFC 3339)"
	case boolean:
		return "true or false"
	case integer, unsigned:
		return "an integer"
	case float:
		return "a number"
	default:
		return "a value"
	}
}

// maxKnown is the maximum number of known members that a sentence lists.
const maxKnown = 24

// known lists the members in a sentence.
func (s *shape) known() string {
	if len(s.names) == 0 {
		return "none"
	}
	if len(s.names) > maxKnown {
		return strings.Join(s.names[:maxKnown], ", ") + ", …"
	}
	return strings.Join(s.names, ", ")
}

func newShape(t reflect.Type) *shape {
	if t == nil {
		return &shape{kind: anyValue, nullable: true}
	}
	if inner, ok := optional(t); ok {
		s := newShape(inner)
		s.nullable = true
		return s
	}
	if t.Kind() == reflect.Pointer && !ownDecoding(t) {
		s := newShape(t.Elem())
		s.nullable = true
		return s
	}
	if t == reflect.TypeFor[time.Time]() {
		return &shape{kind: dateTime}
	}
	if ownDecoding(t) {
		return &shape{kind: anyValue, nullable: true}
	}
	if implements[encoding.TextUnmarshaler](t) {
		return &shape{kind: stringValue}
	}
	return plainShape(t)
}

// plainShape is newShape for a type without its own decoding.
func plainShape(t reflect.Type) *shape {
	switch t.Kind() {
	case reflect.Bool:
		return &shape{kind: boolean}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return &shape{kind: integer, bits: t.Bits()}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return &shape{kind: unsigned, bits: t.Bits()}
	case reflect.Float32, reflect.Float64:
		return &shape{kind: float, bits: t.Bits()}
	case reflect.String:
		return &shape{kind: stringValue}
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return &shape{kind: stringValue} // base64, which the decoder checks
		}
		return &shape{kind: list, element: t.Elem()}
	case reflect.Map:
		return &shape{kind: dictionary, element: t.Elem()}
	case reflect.Struct:
		s := &shape{kind: object, members: map[string]reflect.Type{}}
		s.addMembers(t)
		return s
	default:
		return &shape{kind: anyValue, nullable: true}
	}
}

// addMembers adds the JSON members of a struct type and of its embedded structs.
func (s *shape) addMembers(t reflect.Type) {
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() == reflect.Struct {
				s.addMembers(inner)
				continue
			}
		}
		if name == "-" || !f.IsExported() {
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, ok := s.members[name]; !ok {
			s.names = append(s.names, name)
		}
		s.members[name] = f.Type
	}
}

// optional returns T for models.Optional[T], which distinguishes absent from null itself and
// decodes its Value as usual.
func optional(t reflect.Type) (reflect.Type, bool) {
	if t.Kind() != reflect.Struct || !implements[member](t) {
		return nil, false
	}
	value, ok := t.FieldByName("Value")
	return value.Type, ok
}

func ownDecoding(t reflect.Type) bool {
	return t != reflect.TypeFor[time.Time]() && t != reflect.TypeFor[*time.Time]() &&
		(implements[json.UnmarshalerFrom](t) || implements[stdjson.Unmarshaler](t))
}

func implements[I any](t reflect.Type) bool {
	i := reflect.TypeFor[I]()
	return t.Implements(i) || reflect.PointerTo(t).Implements(i)
}
