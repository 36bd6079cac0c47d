package genesis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
)

// object is an object that the protocol defines. Each method reads one member and reports its
// problems, in the order of the calls.
type object struct {
	problems *[]Problem
	// path is the object's JSON pointer.
	path    string
	members []member
	// known are the names that were read.
	known []string
}

// presence says whether a member may be missing.
type presence bool

const (
	required presence = true
	optional presence = false
)

func (o *object) report(name, format string, args ...any) {
	*o.problems = append(*o.problems, problemAt(o.path+"/"+input.Escape(name), format, args...))
}

// get returns a member with a value of any kind, nil if it is missing. want describes valid values.
func (o *object) get(name string, p presence, want string) *member {
	o.known = append(o.known, name)
	for i := range o.members {
		if o.members[i].name == name {
			return &o.members[i]
		}
	}
	if p == required {
		o.report(name, "is missing; it must be %s", want)
	}
	return nil
}

// kind returns a member with a value of the given kind, nil if it is missing or invalid.
func (o *object) kind(name string, p presence, kind jsontext.Kind, want string) *member {
	m := o.get(name, p, want)
	if m == nil || kindOf(m.sent) == kind {
		return m
	}
	o.mismatch(name, p, want, m.sent)
	return nil
}

func (o *object) mismatch(name string, p presence, want string, value jsontext.Value) {
	hint := ""
	if p == optional && value.Kind() == 'n' {
		hint = "; leave it out if there is none"
	}
	o.report(name, "must be %s, not %s%s", want, describe(value), hint)
}

// text returns a string that ok accepts, "" if it is missing or invalid.
func (o *object) text(name string, p presence, want string, ok func(text string) bool) string {
	m := o.kind(name, p, '"', want)
	if m == nil {
		return ""
	}
	text, err := jsontext.AppendUnquote(nil, m.sent)
	switch {
	case err != nil:
		o.report(name, "must not contain half of a surrogate pair")
	case !ok(string(text)):
		o.mismatch(name, p, want, m.sent)
	default:
		return string(text)
	}
	return ""
}

// name returns a printable string of up to most bytes, "" if it is missing or invalid.
func (o *object) name(name string, p presence, most int, want string) string {
	want = fmt.Sprintf("%s (1 to %d bytes, no control characters)", want, most)
	return o.text(name, p, want, func(text string) bool {
		return text != "" && len(text) <= most && strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) < 0
	})
}

// prose returns a required text, which may be empty. It must not contain NUL, which some databases
// cannot store.
func (o *object) prose(name, want string) string {
	want = fmt.Sprintf("%s (up to %d bytes, no NUL character)", want, maxText)
	return o.text(name, required, want, func(text string) bool { return len(text) <= maxText && strings.IndexByte(text, 0) < 0 })
}

// oneOf returns a required string that must be one of allowed.
func oneOf[T ~string](o *object, name string, allowed ...T) T {
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = string(a)
	}
	return T(o.text(name, required, "one of "+strings.Join(names, ", "), func(text string) bool {
		return slices.Contains(names, text)
	}))
}

// number returns a number from 0 to highest, nil if it is missing or invalid.
func (o *object) number(name string, p presence, highest float64, want string) *float64 {
	m := o.kind(name, p, '0', want)
	if m == nil {
		return nil
	}
	number, err := strconv.ParseFloat(string(m.sent), 64)
	if err != nil || number < 0 || number > highest {
		o.mismatch(name, p, want, m.sent)
		return nil
	}
	return new(number + 0) // no negative zero
}

// confidence returns a number from 0 to 1, nil if it is missing or invalid.
func (o *object) confidence(p presence) *float64 {
	return o.number("confidence", p, 1, "a number from 0 to 1")
}

// integer returns an integer from lowest to highest, nil if it is missing or invalid.
func (o *object) integer(name string, p presence, lowest, highest int64, what string) *int64 {
	want := what + ", an integer without fraction and exponent"
	m := o.kind(name, p, '0', want)
	if m == nil {
		return nil
	}
	number, err := strconv.ParseInt(string(m.sent), 10, 64)
	switch {
	case err != nil && strings.ContainsAny(string(m.sent), ".eE"):
		o.mismatch(name, p, want, m.sent)
		return nil
	case err != nil || number < lowest || number > highest:
		o.report(name, "must be from %d to %d, not %s", lowest, highest, describe(m.sent))
		return nil
	}
	return &number
}

// milliseconds returns an optional positive duration, 0 if it is missing or invalid.
func (o *object) milliseconds(name string) int64 {
	return valueOf(o.integer(name, optional, 1, maxMilliseconds, "a duration in milliseconds"))
}

// boolean returns a boolean, nil if it is missing or invalid.
func (o *object) boolean(name string, p presence) *bool {
	m := o.kind(name, p, 't', "true or false")
	if m == nil {
		return nil
	}
	return new(m.sent.Kind() == 't')
}

// free returns an object whose members the protocol does not define, nil if it is missing or
// invalid.
func (o *object) free(name string, p presence, want string) jsontext.Value {
	if m := o.kind(name, p, '{', want); m != nil {
		return m.received()
	}
	return nil
}

// array returns the elements of an array as members named after their index, nil if the array is
// missing or invalid.
func (o *object) array(name string, p presence, most int, want string) *object {
	m := o.kind(name, p, '[', want)
	if m == nil {
		return nil
	}
	elements := &object{problems: o.problems, path: o.path + "/" + input.Escape(name)}
	dec := newPrinter(m.sent).dec
	_, _ = dec.ReadToken() // the value is valid
	for dec.PeekKind() != ']' {
		if len(elements.members) == most {
			o.report(name, "has more than %d elements", most)
			return nil
		}
		value, _ := dec.ReadValue()
		end := int(dec.InputOffset())
		elements.members = append(elements.members, member{name: strconv.Itoa(len(elements.members)), sent: m.sent[end-len(value) : end : end]})
	}
	return elements
}

// inner opens an object that the protocol defines. ok is false if it is missing or invalid.
func (o *object) inner(name string, p presence, want string) (in *object, ok bool) {
	m := o.kind(name, p, '{', want)
	if m == nil {
		return nil, false
	}
	path := o.path + "/" + input.Escape(name)
	members, problem := readMembers(newPrinter(m.sent), m.sent, path)
	if problem != nil {
		*o.problems = append(*o.problems, *problem)
		return nil, false
	}
	return &object{problems: o.problems, path: path, members: members}, true
}

// end reports misspelt members. Other unknown members are accepted, and signed by the profile jcs;
// a name that differs only in case, _ and - from a known one would be read by some receivers as
// that one, and be missed by the others.
func (o *object) end() {
	for _, m := range o.members {
		if slices.Contains(o.known, m.name) {
			continue
		}
		for _, name := range o.known {
			if strings.EqualFold(strings.NewReplacer("_", "", "-", "").Replace(m.name), name) {
				o.report(m.name, "is not a member of the protocol; its name is %s", name)
			}
		}
	}
}

// kindOf returns the kind of a value, 't' for both booleans.
func kindOf(value jsontext.Value) jsontext.Kind {
	if kind := value.Kind(); kind != 'f' {
		return kind
	}
	return 't'
}

// describe returns a value for an error text.
func describe(value jsontext.Value) string {
	switch value.Kind() {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		text, _ := jsontext.AppendUnquote(nil, value) // replaces halves of surrogate pairs
		return input.Quote(string(text))
	}
	return input.Clip(string(value))
}

// valueOf returns the value of a pointer, zero for nil.
func valueOf[T any](pointer *T) T {
	if pointer == nil {
		return *new(T)
	}
	return *pointer
}
