package strictjson

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
	"comet/internal/nearest"
	"comet/internal/words"
)

// maxFields is how many broken rules one answer names.
const maxFields = 100

// maxKnown is how many known members the detail of an unknown one lists.
const maxKnown = 24

// walker reads a document beside its Go type and collects what does not fit.
type walker struct {
	data   []byte
	dec    *jsontext.Decoder
	lines  *lineIndex
	shapes map[reflect.Type]*shape
	fields []errs.Field
}

func newWalker(data []byte) *walker {
	return &walker{
		data:   data,
		dec:    jsontext.NewDecoder(bytes.NewBuffer(data)),
		lines:  newLineIndex(data),
		shapes: map[reflect.Type]*shape{},
	}
}

// err returns nil or one InvalidRequest with every field.
func (w *walker) err() error {
	if len(w.fields) == 0 {
		return nil
	}
	e := errs.New(errs.InvalidRequest, "%s", w.fields[0].Detail)
	e.Fields = w.fields
	return e
}

// full reports whether the answer names as many broken rules as it will.
func (w *walker) full() bool { return len(w.fields) == maxFields }

// report records a rule broken by the token that was read last. Only here is its
// pointer made: it is as long as all the names above it.
func (w *walker) report(rule, format string, args ...any) {
	if w.full() {
		return
	}
	pointer := words.Pointer(string(w.dec.StackPointer()))
	w.fields = append(w.fields, errs.Field{
		Pointer: pointer, Rule: rule,
		Detail: words.Field(pointer) + " " + fmt.Sprintf(format, args...),
		Line:   w.lines.at(int(w.dec.InputOffset())),
	})
}

// value reads the next value; t is nil where any value fits. The error is a
// MalformedJSON.
func (w *walker) value(t reflect.Type, depth int) error {
	token, err := w.dec.ReadToken()
	if err != nil {
		return syntaxError(w.data, w.lines, err)
	}
	s := w.shapeOf(t)
	switch token.Kind() {
	case '{':
		return w.object(s, depth+1)
	case '[':
		return w.array(s, depth+1)
	case 'n':
		if !s.nullable {
			w.report("not_null", "must not be null, it must be %s", s.noun())
		}
	case 't', 'f':
		if s.kind != anyValue && s.kind != boolean {
			w.report("type", "must be %s, not %s", s.noun(), token.String())
		}
	case '0':
		w.number(s, token.String())
	case '"':
		w.text(s, token.String())
	}
	return nil
}

func (w *walker) object(s *shape, depth int) error {
	if depth > MaxDepth {
		return w.tooDeep()
	}
	if s.kind != anyValue && s.kind != object && s.kind != dictionary {
		w.report("type", "must be %s, not an object", s.noun())
		s = w.shapeOf(nil)
	}
	for w.dec.PeekKind() != '}' {
		token, err := w.dec.ReadToken()
		if err != nil {
			return syntaxError(w.data, w.lines, err)
		}
		name := token.String()
		if len(name) > words.MaxName {
			w.report("max", "has a name longer than %d bytes", words.MaxName)
			if err := w.dec.SkipValue(); err != nil {
				return syntaxError(w.data, w.lines, err)
			}
			continue
		}
		if err := w.value(w.member(s, name), depth); err != nil {
			return err
		}
	}
	_, err := w.dec.ReadToken()
	return err
}

// member returns the type of the member whose name was just read.
func (w *walker) member(s *shape, name string) reflect.Type {
	if strings.ContainsRune(name, 0) {
		w.report("printable", "must not have the NUL character (\\u0000) in its name")
		return nil
	}
	if s.kind != object {
		return s.element
	}
	t, ok := s.members[name]
	if !ok && !w.full() {
		hint := ""
		if near, found := nearest.Word(name, s.names); found {
			hint = "; did you mean " + near + "?"
		}
		w.report("unknown_field", "is not a known member; known are %s%s", s.known(), hint)
	}
	return t
}

func (w *walker) array(s *shape, depth int) error {
	if depth > MaxDepth {
		return w.tooDeep()
	}
	if s.kind != anyValue && s.kind != list {
		w.report("type", "must be %s, not an array", s.noun())
		s = w.shapeOf(nil)
	}
	for w.dec.PeekKind() != ']' {
		if err := w.value(s.element, depth); err != nil {
			return err
		}
	}
	_, err := w.dec.ReadToken()
	return err
}

func (w *walker) tooDeep() error {
	return malformed(errs.Field{
		Pointer: words.Pointer(string(w.dec.StackPointer())), Rule: "depth", Line: w.lines.at(int(w.dec.InputOffset())),
		Detail: fmt.Sprintf("the document is nested deeper than %d levels, %s", MaxDepth, w.lines.place(int(w.dec.InputOffset())-1)),
	})
}

func (w *walker) number(s *shape, text string) {
	var err error
	switch s.kind {
	case anyValue:
		// What it becomes is up to the receiver; a double is all JSON promises.
		if _, err = strconv.ParseFloat(text, 64); err != nil {
			w.report("range", "is a number too large to be kept, %s", words.Clip(text))
		}
		return
	case integer:
		_, err = strconv.ParseInt(text, 10, s.bits)
	case unsigned:
		_, err = strconv.ParseUint(strings.TrimPrefix(text, "-"), 10, s.bits)
		if err == nil && text[0] == '-' {
			err = strconv.ErrRange
		}
	case float:
		_, err = strconv.ParseFloat(text, s.bits)
	default:
		w.report("type", "must be %s, not a number", s.noun())
		return
	}
	if errors.Is(err, strconv.ErrRange) {
		w.report("range", "must be %s of at most %d bits, %s is out of range", s.noun(), s.bits, words.Clip(text))
	} else if err != nil {
		w.report("type", "must be %s, not %s", s.noun(), words.Clip(text))
	}
}

func (w *walker) text(s *shape, text string) {
	if strings.ContainsRune(text, 0) {
		w.report("printable", "must not contain the NUL character (\\u0000)")
		return
	}
	switch s.kind {
	case anyValue, stringValue:
	case dateTime:
		// RFC 3339 has no decimal comma, which Go would read.
		if strings.Contains(text, ",") || new(time.Time).UnmarshalText([]byte(text)) != nil {
			w.report("date_time", "must be %s, not %q", s.noun(), words.Clip(text))
		}
	default:
		w.report("type", "must be %s, not a string", s.noun())
	}
}
