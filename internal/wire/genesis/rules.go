package genesis

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/input"
)

// rule describes a member of an object that the protocol defines.
type rule struct {
	name     string
	required bool
	// kind is the kind of valid values, 't' for both booleans and 0 for all kinds.
	kind jsontext.Kind
	// want describes valid values.
	want string
	// check checks a value of the kind, nil if all are valid. The other fields are its parameters.
	check  func(c *checker, path string, r rule, m member)
	least  int64
	most   int64
	words  []string
	fields []rule
}

const (
	required = true
	optional = false
)

// The functions below return the rules of common members.

func name(name string, required bool, most int64, want string) rule {
	return rule{name: name, required: required, kind: '"', want: want, check: isName, most: most}
}

// agent returns the rule of the id of one agent.
func agent(name string, required bool) rule {
	return rule{name: name, required: required, kind: '"', want: "the id of an agent", check: isAgent, most: maxName}
}

func prose(name, want string) rule {
	return rule{name: name, required: required, kind: '"', want: want, check: isProse}
}

func word(name string, words ...string) rule {
	return rule{name: name, required: required, kind: '"', want: "one of " + strings.Join(words, ", "), check: isWord, words: words}
}

func confidence(required bool) rule {
	return rule{name: "confidence", required: required, kind: '0', want: "a number from 0 to 1", check: isNumber, most: 1}
}

// integer returns the rule of an optional integer.
func integer(name string, least, most int64, what string) rule {
	return rule{name: name, kind: '0', want: what + ", an integer without a fraction or an exponent", check: isInteger, least: least, most: most}
}

func milliseconds(name string, least int64) rule {
	return integer(name, least, maxMilliseconds, "a duration in milliseconds")
}

func boolean(name string, required bool) rule {
	return rule{name: name, required: required, kind: 't', want: "true or false"}
}

// details returns the rule of an optional object that the protocol does not define.
func details(name string) rule { return rule{name: name, kind: '{', want: "an object"} }

// checker collects the problems of a message in the order of the rules.
type checker struct {
	problems []Problem
}

func (c *checker) report(path, name, format string, args ...any) {
	c.problems = append(c.problems, problemAt(path+"/"+input.Escape(name), format, args...))
}

// mismatch reports a value that is not what its rule wants; limits may describe valid values further.
func (c *checker) mismatch(path string, r rule, m member, limits string) {
	hint := ""
	if !r.required && m.sent.Kind() == 'n' {
		hint = "; leave it out if there is none"
	}
	c.report(path, r.name, "must be %s%s, not %s%s", r.want, limits, describe(m.sent), hint)
}

// object checks the members of the object at path. Unknown ones are accepted unless their name
// differs only in case, _ and - from a known one.
func (c *checker) object(path string, members []member, rules []rule) {
	for _, r := range rules {
		m := find(members, r.name)
		switch {
		case m == nil && r.required:
			c.report(path, r.name, "is missing; it must be %s", r.want)
		case m == nil:
		case r.kind != 0 && kindOf(m.sent) != r.kind:
			c.mismatch(path, r, *m, "")
		case r.check != nil:
			r.check(c, path, r, *m)
		}
	}
	for _, m := range members {
		if slices.ContainsFunc(rules, func(r rule) bool { return r.name == m.name }) {
			continue
		}
		plain := strings.NewReplacer("_", "", "-", "").Replace(m.name)
		for _, r := range rules {
			if strings.EqualFold(plain, r.name) {
				c.report(path, m.name, "is not a member of the protocol; use %s", r.name)
			}
		}
	}
}

// text returns a string; it reports halves of surrogate pairs.
func (c *checker) text(path string, r rule, m member) (text string, ok bool) {
	raw, err := unquote(m.sent)
	if err != nil {
		c.report(path, r.name, "must not contain half of a surrogate pair")
	}
	return string(raw), err == nil
}

// isName accepts a printable string of up to most bytes.
func isName(c *checker, path string, r rule, m member) {
	text, ok := c.text(path, r, m)
	if ok && (text == "" || len(text) > int(r.most) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })) {
		c.mismatch(path, r, m, fmt.Sprintf(" (1 to %d bytes, no control characters)", r.most))
	}
}

// isAgent accepts the id of one agent.
func isAgent(c *checker, path string, r rule, m member) {
	if isName(c, path, r, m); string(m.printed) == strconv.Quote(Broadcast) {
		c.report(path, r.name, "must be the id of one agent, not %s", describe(m.sent))
	}
}

// isProse accepts a string, which may be empty, without NUL, which some databases cannot store.
func isProse(c *checker, path string, r rule, m member) {
	if text, ok := c.text(path, r, m); ok && (len(text) > maxText || strings.IndexByte(text, 0) >= 0) {
		c.mismatch(path, r, m, fmt.Sprintf(" (up to %d bytes, no NUL character)", maxText))
	}
}

// isWord accepts one of words.
func isWord(c *checker, path string, r rule, m member) {
	if text, ok := c.text(path, r, m); ok && !slices.Contains(r.words, text) {
		c.mismatch(path, r, m, "")
	}
}

// isNumber accepts a number from 0 to most.
func isNumber(c *checker, path string, r rule, m member) {
	if number, err := strconv.ParseFloat(string(m.sent), 64); err != nil || number < 0 || number > float64(r.most) {
		c.mismatch(path, r, m, "")
	}
}

// isInteger accepts an integer from least to most.
func isInteger(c *checker, path string, r rule, m member) {
	number, err := strconv.ParseInt(string(m.sent), 10, 64)
	switch {
	case err != nil && strings.ContainsAny(string(m.sent), ".eE"):
		c.mismatch(path, r, m, "")
	case err != nil || number < r.least || number > r.most:
		c.report(path, r.name, "must be from %d to %d, not %s", r.least, r.most, describe(m.sent))
	}
}

// isShort accepts a value of up to most bytes.
func isShort(c *checker, path string, r rule, m member) {
	if len(m.sent) > int(r.most) {
		c.report(path, r.name, "is longer than %d bytes", r.most)
	}
}

// hasFields accepts an object whose members the protocol defines.
func hasFields(c *checker, path string, r rule, m member) {
	path += "/" + input.Escape(r.name)
	p := newPrinter(m.sent)
	defer p.release()
	members, problem := readMembers(p, m.sent, path)
	if problem != nil {
		c.problems = append(c.problems, *problem)
		return
	}
	c.object(path, members, r.fields)
	if from, to := find(members, "startOffset"), find(members, "endOffset"); from != nil && to != nil {
		least, _ := strconv.ParseInt(string(from.sent), 10, 64)
		if most, err := strconv.ParseInt(string(to.sent), 10, 64); err == nil && most < least {
			c.report(path, "endOffset", "must not be less than startOffset, which is %d", least)
		}
	}
}

// hasElements accepts an array of up to most elements, to each of which the rule in fields applies.
func hasElements(c *checker, path string, r rule, m member) {
	p := newPrinter(m.sent)
	defer p.release()
	_, _ = p.dec.ReadToken() // the value is valid
	for i := 0; p.dec.PeekKind() != ']'; i++ {
		if i == int(r.most) {
			c.report(path, r.name, "has more than %d elements", r.most)
			return
		}
		value, _ := p.dec.ReadValue()
		element := r.fields[0]
		element.name = strconv.Itoa(i)
		c.object(path+"/"+r.name, []member{{name: element.name, sent: value}}, []rule{element})
	}
}

// textOf returns a string, "" if it is missing or of another kind.
func textOf(members []member, name string) string {
	m := find(members, name)
	if m == nil || m.sent.Kind() != '"' {
		return ""
	}
	text, _ := unquote(m.sent)
	return string(text)
}

// unquote returns the value of a valid quoted string. It copies only if the string has escapes. The
// error is that the string contains half of a surrogate pair.
func unquote(quoted []byte) ([]byte, error) {
	if bytes.IndexByte(quoted, '\\') < 0 {
		return quoted[1 : len(quoted)-1], nil
	}
	return jsontext.AppendUnquote(nil, quoted)
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
		text, _ := unquote(value) // replaces halves of surrogate pairs
		return input.Quote(string(text))
	}
	return input.Clip(string(value))
}
