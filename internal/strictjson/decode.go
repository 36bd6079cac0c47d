// Package strictjson reads a document the way comet's APIs promise it: exactly
// one JSON value, every member known and given once, every value of the right
// type, and a failure that says where. The decoder underneath stops at the first
// error with a text about Go types; a caller of an API needs all of them, with
// JSON pointers.
package strictjson

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/words"
)

// MaxDepth is how deep objects and arrays may be nested.
const MaxDepth = 64

// Decode reads the one JSON value in data into v, a non-nil pointer. An error is
// an *errs.Error: MalformedJSON with one field where data is not one strict JSON
// value (rules required, syntax, utf8, duplicate_key, trailing_data, depth),
// else InvalidRequest with a field for each member that is unknown or of a wrong
// type (rules unknown_field, type, range, not_null, date_time, printable, and max
// for a name longer than words.MaxName, below which nothing is judged). v may be
// partly filled after an error.
//
// Names match case-sensitively. null is accepted for pointers, interfaces and
// models.Optional only. Line is set in documents of more than one line.
func Decode(data []byte, v any) error {
	if len(bytes.TrimLeft(data, " \t\r\n")) == 0 {
		return malformed(errs.Field{Rule: "required", Detail: "the document is empty; it must be one JSON value"})
	}
	suspect := needsWalk(data)
	if suspect {
		if err := walk(data, v); err != nil {
			return err
		}
	}
	err := json.Unmarshal(data, v, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	if !suspect {
		if err := walk(data, v); err != nil {
			return err
		}
	}
	return convert(data, err)
}

// needsWalk reports whether data may hold what the decoder accepts and Decode
// does not: null, NUL, deep nesting, long names. Most documents hold none of it
// and are read once only.
func needsWalk(data []byte) bool {
	return bytes.Contains(data, []byte("null")) || bytes.Contains(data, []byte(`\u0000`)) ||
		bytes.Count(data, []byte("["))+bytes.Count(data, []byte("{")) > MaxDepth || mayHaveLongName(data)
}

// mayHaveLongName reports whether data holds a string longer than words.MaxName
// before a colon. Escapes only make a string look longer than it is.
func mayHaveLongName(data []byte) bool {
	for rest := data; len(rest) > words.MaxName; {
		begin := bytes.IndexByte(rest, '"')
		if begin < 0 {
			return false
		}
		rest = rest[begin+1:]
		end := closingQuote(rest)
		if end < 0 {
			return false // no JSON, which the decoder will say
		}
		rest = rest[end+1:]
		if end > words.MaxName && bytes.HasPrefix(bytes.TrimLeft(rest, " \t\r\n"), []byte(":")) {
			return true
		}
	}
	return false
}

// closingQuote returns where the string ends whose opening quote stands before
// text, -1 where it does not.
func closingQuote(text []byte) int {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return -1
}

// walk checks data against the type v points to.
func walk(data []byte, v any) error {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return nil // the decoder's own error is better
	}
	w := newWalker(data)
	if err := w.value(t.Elem(), 0); err != nil {
		return err
	}
	if rest := bytes.TrimLeft(data[w.dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return malformed(errs.Field{
			Rule: "trailing_data", Line: w.lines.at(len(data) - len(rest)),
			Detail: "there is more after the JSON value, " + w.lines.place(len(data)-len(rest)),
		})
	}
	return w.err()
}

// convert turns an error of the decoder that the walk has no rule for, which is
// that of a type with its own decoding, into one for the caller.
func convert(data []byte, err error) error {
	var semantic *json.SemanticError
	if !errors.As(err, &semantic) || semantic.JSONKind == 0 {
		return errs.Wrap(errs.Internal, err, "the document could not be read")
	}
	pointer := words.Pointer(string(semantic.JSONPointer))
	e := errs.Wrap(errs.InvalidRequest, err, "%s has a value that is not allowed", words.Field(pointer))
	e.Fields = []errs.Field{{
		Pointer: pointer, Rule: "type", Detail: e.Detail,
		Line: newLineIndex(data).at(int(semantic.ByteOffset)),
	}}
	return e
}

func malformed(f errs.Field) *errs.Error {
	e := errs.New(errs.MalformedJSON, "%s", f.Detail)
	e.Fields = []errs.Field{f}
	return e
}

// syntaxError turns an error of the tokenizer into one for the caller.
func syntaxError(data []byte, lines *lineIndex, err error) error {
	var syntactic *jsontext.SyntacticError
	if !errors.As(err, &syntactic) {
		return malformed(errs.Field{Rule: "syntax", Detail: "the document ends before it is complete"})
	}
	offset := min(int(syntactic.ByteOffset), len(data))
	f := errs.Field{Pointer: words.Pointer(string(syntactic.JSONPointer)), Rule: "syntax", Line: lines.at(offset)}
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		f.Rule = "duplicate_key"
		f.Detail = words.Quote(syntactic.JSONPointer.LastToken()) + " is given twice in one object, " + lines.place(offset)
	case notUTF8(data[offset:]):
		f.Rule, f.Detail = "utf8", "the document is not valid UTF-8 "+lines.place(offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		f.Detail = "the document ends before it is complete, " + lines.place(offset)
	case bytes.HasPrefix(data, []byte("\uFEFF")) && offset == 0:
		f.Detail = "the document begins with a byte order mark, which JSON does not allow"
	default:
		f.Detail = "the document is not valid JSON " + lines.place(offset) + ": " + syntactic.Err.Error()
	}
	return malformed(f)
}

// notUTF8 reports whether rest begins with a byte that is not UTF-8 or with the
// escape of half a surrogate pair.
func notUTF8(rest []byte) bool {
	if r, size := utf8.DecodeRune(rest); r == utf8.RuneError && size == 1 {
		return true
	}
	if len(rest) < 6 || rest[0] != '\\' || rest[1] != 'u' {
		return false
	}
	n, err := strconv.ParseUint(string(rest[2:6]), 16, 16)
	return err == nil && n >= 0xD800 && n <= 0xDFFF
}
