package plan

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"comet/internal/errs"
	"comet/internal/input"
)

const (
	idExpression = `[A-Za-z_][A-Za-z0-9_-]{0,63}`
	// referenceExpression matches a reference to a step, without a path.
	referenceExpression = `(` + idExpression + `)\.(?:result\b|([A-Za-z_][A-Za-z0-9_-]*))|OUTPUT\[(` + idExpression + `)\]`
	pathExpression      = `(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]{1,9}\]|\["(?:[^"\\]|\\.)*"\])*`
)

// referencePattern matches a reference: $t1.result and $OUTPUT[t1], each with a path such as .files[0]["a b"].
// Group 1 is "$" for an escaped reference, 2 and 4 are ids, 3 is the name after the id unless it is result, and the last one is
// the path. templatePattern also matches $input without a name, as group 5.
var (
	referencePattern = regexp.MustCompile(`(\$?)\$(?:` + referenceExpression + `)(` + pathExpression + `)`)
	templatePattern  = regexp.MustCompile(`(\$?)\$(?:` + referenceExpression + `|(` + inputName + `)\b)(` + pathExpression + `)`)
)

// reference is a reference in a text.
type reference struct {
	start, end int
	text       string // without the "$" that escapes it
	step, path string
	escaped    bool // "$$t1.result" stands for the text "$t1.result"
	typo       bool // without ".result": an error if it names a step, otherwise a text
	input      bool // to the input of a template; it has no step
}

// referencesIn returns the references in a text of a template or another plan.
func referencesIn(text string, template bool) (out []reference) {
	pattern := referencePattern
	if template {
		pattern = templatePattern
	}
	if !strings.Contains(text, "$") {
		return nil
	}
	for _, m := range pattern.FindAllStringSubmatchIndex(text, -1) {
		part := func(n int) string {
			if m[2*n] < 0 {
				return ""
			}
			return text[m[2*n]:m[2*n+1]]
		}
		r := reference{start: m[0], end: m[1], step: part(2) + part(4), path: part(pattern.NumSubexp()), escaped: part(1) != "", typo: part(3) != ""}
		r.text = text[m[0]+len(part(1)) : m[1]]
		if r.input = template && (part(2) == inputName || part(2)+part(4) == ""); r.input {
			if part(2) != "" {
				r.path = "." + cmp.Or(part(3), "result") + r.path
			}
			r.step, r.typo = "", false
		}
		out = append(out, r)
	}
	return out
}

// textsOf returns the strings of a JSON value with their JSON pointers. Names of members are not included.
func textsOf(raw json.RawMessage) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		if !mayRefer(raw) {
			return
		}
		if v, err := decode(raw); err == nil {
			eachText("", v, yield)
		}
	}
}

func eachText(at string, v any, yield func(string, string) bool) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) { // the order of errors
			if !eachText(at+"/"+input.Escape(name), v[name], yield) {
				return false
			}
		}
	case []any:
		for i, inner := range v {
			if !eachText(at+"/"+strconv.Itoa(i), inner, yield) {
				return false
			}
		}
	case string:
		return yield(at, v)
	}
	return true
}

// decode decodes JSON without loss of digits.
func decode(raw json.RawMessage) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// Equal reports whether two JSON texts have the same value.
func Equal(a, b json.RawMessage) bool {
	one, err := decode(a)
	other, otherErr := decode(b)
	return err == nil && otherErr == nil && reflect.DeepEqual(one, other)
}

// Resolve returns the arguments of a step with results in place of references. A string that is one
// reference becomes the result with its type; in a longer string the result is inserted: a string as it
// is, other values as JSON. result returns the result of a step that has succeeded. A path that does not
// exist in a result is an errs.NotFound error.
func (p *Plan) Resolve(step int, result func(step int) (json.RawMessage, error)) (json.RawMessage, error) {
	arguments := p.Steps[step].Arguments
	if !mayRefer(arguments) {
		return arguments, nil
	}
	r := resolver{plan: p, result: result, decoded: map[int]any{}, left: MaxArguments - len(arguments)}
	return replaceTexts(arguments, r.replace)
}

// mayRefer reports whether JSON can contain a reference: the "$" may be escaped.
func mayRefer(raw json.RawMessage) bool {
	return bytes.Contains(raw, []byte("$")) || bytes.Contains(raw, []byte(`\u0024`))
}

func encode(v any) (json.RawMessage, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return bytes.TrimSuffix(out.Bytes(), []byte("\n")), err
}

// Literal escapes the references in arguments, for a plan with a single step of an id: Resolve then returns the original
// arguments.
func Literal(arguments json.RawMessage, id string) (json.RawMessage, error) {
	if !mayRefer(arguments) {
		return arguments, nil
	}
	return replaceTexts(arguments, func(text string) (any, error) {
		var out strings.Builder
		last := 0
		for _, ref := range referencesIn(text, false) {
			out.WriteString(text[last:ref.start])
			if last = ref.start; !ref.typo || ref.step == id {
				out.WriteByte('$')
			}
		}
		return out.String() + text[last:], nil
	})
}

// replaceTexts returns JSON with other values in place of its strings.
func replaceTexts(raw json.RawMessage, replace func(string) (any, error)) (json.RawMessage, error) {
	v, err := decode(raw)
	if err == nil {
		v, err = replaceIn(v, replace)
	}
	if err != nil {
		return nil, err
	}
	return encode(v)
}

func replaceIn(v any, replace func(string) (any, error)) (_ any, err error) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			if v[name], err = replaceIn(inner, replace); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, inner := range v {
			if v[i], err = replaceIn(inner, replace); err != nil {
				return nil, err
			}
		}
	case string:
		return replace(v)
	}
	return v, nil
}

type resolver struct {
	plan    *Plan
	result  func(step int) (json.RawMessage, error)
	decoded map[int]any
	left    int // bytes that may still be inserted
}

func (r *resolver) replace(text string) (any, error) {
	var out strings.Builder
	last := 0
	for _, ref := range referencesIn(text, r.plan.template) {
		if _, known := r.plan.index[ref.step]; ref.typo && !known { // it is a text
			continue
		}
		out.WriteString(text[last:ref.start])
		last = ref.end
		if ref.escaped {
			out.WriteString(ref.text)
			continue
		}
		v, err := r.value(ref)
		if err != nil {
			return nil, err
		}
		raw, err := encode(v)
		if err != nil {
			return nil, err
		}
		if r.left -= len(raw); r.left < 0 {
			return nil, errs.New(errs.InvalidRequest, "the arguments and the results that they refer to exceed %d bytes", MaxArguments)
		}
		if ref.start == 0 && ref.end == len(text) {
			return raw, nil
		}
		if inserted, isText := v.(string); isText {
			out.WriteString(inserted)
		} else {
			out.Write(raw)
		}
	}
	out.WriteString(text[last:])
	return out.String(), nil
}

// value returns the value that a reference refers to.
func (r *resolver) value(ref reference) (any, error) {
	if ref.input {
		return memberAt(r.plan.input, ref)
	}
	step := r.plan.index[ref.step]
	v, known := r.decoded[step]
	if !known {
		raw, err := r.result(step)
		if err != nil {
			return nil, err
		}
		if v, err = decode(raw); err != nil {
			return nil, err
		}
		r.decoded[step] = v
	}
	return memberAt(v, ref)
}

// memberAt returns the member of a value at the path of a reference.
func memberAt(v any, ref reference) (any, error) {
	for _, part := range pathParts(ref.path) {
		inner, ok := member(v, part)
		if !ok {
			return nil, errs.New(errs.NotFound, "%s: there is no %s in %s", input.Clip(ref.text), input.Clip(part), describe(v))
		}
		v = inner
	}
	return v, nil
}

var pathPart = regexp.MustCompile(`\.([A-Za-z_][A-Za-z0-9_-]*)|\[([0-9]+|"(?:[^"\\]|\\.)*")\]`)

// pathParts splits a path into names, with quotes where it has them, and indexes.
func pathParts(path string) (parts []string) {
	for _, m := range pathPart.FindAllStringSubmatch(path, -1) {
		parts = append(parts, m[1]+m[2])
	}
	return parts
}

func member(v any, part string) (inner any, ok bool) {
	switch v := v.(type) {
	case map[string]any:
		if name, err := strconv.Unquote(part); err == nil {
			part = name
		}
		inner, ok = v[part]
	case []any:
		if i, err := strconv.Atoi(part); err == nil && i < len(v) {
			return v[i], true
		}
	}
	return inner, ok
}

// maxNames limits the names of members in an error.
const maxNames = 8

// describe returns a description of a value, for an error about a missing member.
func describe(v any) string {
	switch v := v.(type) {
	case map[string]any:
		names := slices.Sorted(maps.Keys(v))
		if len(names) > maxNames {
			names = append(names[:maxNames], "…")
		}
		return fmt.Sprintf("an object with the members [%s]", input.Clip(strings.Join(names, ", ")))
	case []any:
		return fmt.Sprintf("a list of length %d", len(v))
	case string:
		return "a string"
	case json.Number:
		return "a number"
	case bool:
		return "a boolean"
	}
	return "null"
}
