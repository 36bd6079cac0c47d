package input

import (
	"bytes"
	"errors"

	"github.com/go-json-experiment/json"

	"comet/internal/errs"
)

// maxFields is the maximum number of violations in an error of DecodeJSON.
const maxFields = 100

// DecodeJSON decodes the JSON document in data into v, a non-nil pointer. The error is an
// *errs.Error with a field for each violation (see Parse and Document.Decode): MalformedJSON if
// data is not one strict JSON value, else InvalidRequest. Line is set in documents of more than
// one line. v may be partly filled after an error.
//
// Names match case-sensitively. null is valid for pointers, interfaces and models.Optional only.
func DecodeJSON(data []byte, v any) error {
	if isPlain(data) && json.Unmarshal(data, v, json.RejectUnknownMembers(true)) == nil {
		return nil
	}
	d := parse(data, JSON, maxFields-1)
	if err := d.checkJSON(data, v); err != nil {
		return err
	}
	if err := json.Unmarshal(d.Root.JSON(), v, json.RejectUnknownMembers(true)); err != nil {
		return d.decodeError(data, err)
	}
	return nil
}

// isPlain reports whether data is free of everything that the decoder accepts and DecodeJSON
// rejects: null, NUL, deep nesting, long names. Most documents are, and are read once only.
func isPlain(data []byte) bool {
	if bytes.Contains(data, []byte("null")) || bytes.Contains(data, []byte(`\u0000`)) {
		return false
	}
	depth := 0
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if depth++; depth > MaxDepth {
				return false
			}
		case '}', ']':
			depth--
		case '"':
			length := stringLength(data[i+1:])
			i += length + 1
			if length > MaxName && i < len(data) && bytes.HasPrefix(bytes.TrimLeft(data[i+1:], " \t\r\n"), []byte(":")) {
				return false
			}
		}
	}
	return true
}

// stringLength returns the length of the string that text begins with, without its closing quote.
func stringLength(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return len(text)
}

func (d *Document) checkJSON(data []byte, v any) error {
	if d.Root != nil {
		d.check(v)
	}
	violations := d.Violations()
	if isSingleLine(data) {
		for i := range violations {
			violations[i].Line = 0
		}
	}
	return violations.Err()
}

// decodeError converts an error of a type with its own decoding, for which there is no rule.
func (d *Document) decodeError(data []byte, err error) error {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok || semantic.JSONKind == 0 {
		return errs.Wrap(errs.Internal, err, "the document could not be decoded")
	}
	pointer := Pointer(string(semantic.JSONPointer))
	e := errs.Wrap(errs.InvalidRequest, err, "%s has an invalid value", Field(pointer))
	e.Fields = []errs.Field{{Pointer: pointer, Rule: "type", Detail: e.Detail}}
	if !isSingleLine(data) {
		e.Fields[0].Line = d.Line(pointer)
	}
	return e
}
