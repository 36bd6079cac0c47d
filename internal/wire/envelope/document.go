package envelope

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
)

// document finds the known members of the object in data. It runs inside json.Unmarshal, which
// reuses its decoders.
type document struct {
	data    []byte
	members []member
	// end is the offset after the object. problem says why data is invalid.
	end     int
	problem *Problem
}

// readDocument returns the known members of the object in data. If data is malformed, it returns a
// problem and the members before the error.
func readDocument(data []byte) ([]member, *Problem) {
	switch {
	case len(data) > MaxSize:
		return nil, problemf("the message is longer than %d bytes", MaxSize)
	case len(bytes.TrimLeft(data, " \t\r\n")) == 0:
		return nil, problemf("the message is empty")
	case tooDeep(data):
		return nil, problemf("the message is nested deeper than %d levels", maxDepth)
	}
	d := document{data: data}
	err := json.Unmarshal(data, &d)
	if d.problem != nil || err == nil {
		return d.members, d.problem
	}
	rest := bytes.TrimLeft(data[d.end:], " \t\r\n")
	return d.members, problemf("there is data after the message, at byte %d", len(data)-len(rest))
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (d *document) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	err := d.read(dec)
	d.end = int(dec.InputOffset())
	if err != nil {
		d.problem = syntaxProblem(d.data, err)
	}
	return err
}

func (d *document) read(dec *jsontext.Decoder) error {
	if dec.PeekKind() != '{' {
		value, err := dec.ReadValue()
		if err == nil {
			d.problem = problemf("the message must be an object, not %s", describeValue(value))
		}
		return err
	}
	top, err := d.object(dec, nil, 10)
	d.members = top.members
	return err
}

// object reads the object with the given name. Its members are the known ones, or all members of hints.
// expected is their usual number.
func (d *document) object(dec *jsontext.Decoder, name []byte, expected int) (member, error) {
	m := member{name: name, members: make([]member, 0, expected)}
	if _, err := dec.ReadToken(); err != nil {
		return m, err
	}
	begin, all := int(dec.InputOffset())-1, string(name) == "hints"
	for dec.PeekKind() != '}' {
		quoted, err := d.value(dec)
		if err != nil {
			return m, err
		}
		in := member{name: unquote(quoted)}
		if dec.PeekKind() == '{' && isRead(name, in.name) {
			in, err = d.object(dec, in.name, 4)
		} else {
			in.value, err = d.value(dec)
		}
		if err != nil {
			return m, err
		}
		if all || isKnownMember(in.name) {
			m.members = append(m.members, in)
		}
	}
	_, err := dec.ReadToken()
	end := int(dec.InputOffset())
	m.value = d.data[begin:end:end]
	return m, err
}

// value returns the next value as a slice of data, because the decoder reuses its own buffer.
func (d *document) value(dec *jsontext.Decoder) ([]byte, error) {
	value, err := dec.ReadValue()
	if err != nil {
		return nil, err
	}
	end := int(dec.InputOffset())
	return d.data[end-len(value) : end : end], nil
}

// unquote returns the value of a quoted string. It copies only if the string has escapes.
func unquote(quoted []byte) []byte {
	inner := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	text, _ := jsontext.AppendUnquote(make([]byte, 0, len(quoted)), quoted) // quoted is valid
	return text
}

// tooDeep reports whether text, which may be malformed, is nested deeper than MaxDepth.
func tooDeep(text []byte) bool {
	if bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) <= maxDepth {
		return false
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i = stringEnd(text, i) - 1
		case '{', '[':
			if depth++; depth > maxDepth {
				return true
			}
		case '}', ']':
			depth--
		}
	}
	return false
}

// stringEnd returns the end of the string that begins at i, the end of text if it is not
// terminated.
func stringEnd(text []byte, i int) int {
	for i++; ; {
		quote := bytes.IndexByte(text[i:], '"')
		if quote < 0 {
			return len(text)
		}
		i += quote + 1
		slashes := 0
		for text[i-2-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

func problemf(format string, args ...any) *Problem {
	return &Problem{Detail: fmt.Sprintf(format, args...)}
}

// syntaxProblem converts an error of the decoder.
func syntaxProblem(data []byte, err error) *Problem {
	syntactic, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return problemf("the message ends before it is complete")
	}
	offset := min(int(syntactic.ByteOffset), len(data))
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		field := input.Field(string(syntactic.JSONPointer))
		return &Problem{Field: field, Detail: field + " appears twice"}
	case errors.Is(err, io.ErrUnexpectedEOF):
		return problemf("the message ends before it is complete")
	case notUTF8(data[offset:]):
		return problemf("the message is not valid UTF-8 at byte %d", offset)
	}
	return problemf("the message is not valid JSON at byte %d: %s", offset, syntactic.Err.Error())
}

func notUTF8(rest []byte) bool {
	r, size := utf8.DecodeRune(rest)
	return r == utf8.RuneError && size == 1
}
