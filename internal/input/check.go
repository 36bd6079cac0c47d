package input

import (
	"cmp"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"comet/internal/errs"
)

// check compares the document with the type that v points to. Values with a violation become
// Invalid. It returns false if v is not a pointer.
func (d *Document) check(v any) bool {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return false
	}
	c := &checker{Document: d, shapes: map[reflect.Type]*shape{}}
	c.value(d.Root, t.Elem())
	return true
}

type checker struct {
	*Document
	shapes map[reflect.Type]*shape
}

// shapeOf returns the shape of t, which is nil where any value is valid.
func (c *checker) shapeOf(t reflect.Type) *shape {
	s, ok := c.shapes[t]
	if !ok {
		s = newShape(t)
		c.shapes[t] = s
	}
	return s
}

// fail records a violation of n.
func (c *checker) fail(n *Node, rule, format string, args ...any) {
	c.report(n.Line, errs.InvalidRequest, rule, format, args...)
	n.Kind = Invalid
}

// value checks a value; t is nil where any value is valid.
func (c *checker) value(n *Node, t reflect.Type) {
	s := c.shapeOf(t)
	switch n.Kind {
	case Object:
		c.object(n, s)
	case Array:
		c.array(n, s)
	case Null:
		if !s.nullable {
			c.fail(n, "not_null", "must not be null, it must be %s", s.noun())
		}
	case Boolean:
		c.boolean(n, s)
	case Number:
		c.number(n, s)
	case String:
		c.text(n, s)
	case Invalid: // reported already
	}
}

func (c *checker) object(n *Node, s *shape) {
	valid := s.kind == anyValue || s.kind == object || s.kind == dictionary
	if !valid {
		c.report(n.Line, errs.InvalidRequest, "type", "must be %s, not an object", s.noun())
		s = c.shapeOf(nil)
	}
	for i := range n.Members {
		m := &n.Members[i]
		c.below(step{m.Name, -1}, func() { c.value(&m.Value, c.member(m, s)) })
	}
	if !valid {
		n.Kind = Invalid
	}
}

// member returns the type of a member. An unknown member becomes Invalid.
func (c *checker) member(m *Member, s *shape) reflect.Type {
	if s.kind != object {
		return s.element
	}
	t, ok := s.members[m.Name]
	if ok {
		return t
	}
	m.Value.Kind = Invalid
	if c.Full() {
		c.more++
		return nil
	}
	hint := DidYouMean(m.Name, s.names)
	if hint == "" {
		hint = "; known are " + s.known()
	}
	c.report(m.Line, errs.InvalidRequest, "unknown_field", "is not a known member%s", hint)
	return nil
}

func (c *checker) array(n *Node, s *shape) {
	valid := s.kind == anyValue || s.kind == list
	if !valid {
		c.report(n.Line, errs.InvalidRequest, "type", "must be %s, not an array", s.noun())
		s = c.shapeOf(nil)
	}
	for i := range n.Members {
		c.below(step{index: i}, func() { c.value(&n.Members[i].Value, s.element) })
	}
	if !valid {
		n.Kind = Invalid
	}
}

func (c *checker) boolean(n *Node, s *shape) {
	switch {
	case s.kind == stringValue:
		c.fail(n, "type", "must be a string; put %s in quotes", n.Text)
	case s.kind != anyValue && s.kind != boolean:
		c.fail(n, "type", "must be %s, not %s", s.noun(), n.Text)
	case n.Text != "true" && n.Text != "false": // YAML has more forms
		c.fail(n, "type", "must be written true or false, not %s", n.Text)
	}
}

func (c *checker) number(n *Node, s *shape) {
	var err error
	written := n.Text
	valid := jsontext.Value(written).IsValid() // YAML has more forms
	if valid && (s.kind == integer || s.kind == unsigned) {
		n.Text = integral(written)
	}
	switch s.kind {
	case integer:
		_, err = strconv.ParseInt(n.Text, 10, s.bits)
	case unsigned:
		_, err = strconv.ParseUint(strings.TrimPrefix(n.Text, "-"), 10, s.bits)
		if err == nil && n.Text[0] == '-' {
			err = strconv.ErrRange
		}
	case float:
		_, err = strconv.ParseFloat(n.Text, s.bits)
	case anyValue: // what receives it may expect a double
		_, err = strconv.ParseFloat(n.Text, 64)
	case stringValue:
		c.fail(n, "type", "must be a string, not a number; put %s in quotes", Clip(n.Text))
		return
	default:
		c.fail(n, "type", "must be %s, not a number", s.noun())
		return
	}
	switch {
	case errors.Is(err, strconv.ErrRange) && s.kind == anyValue:
		c.fail(n, "range", "must be a number of at most 64 bits, %s is out of range", Clip(written))
	case errors.Is(err, strconv.ErrRange):
		c.fail(n, "range", "must be %s of at most %d bits, %s is out of range", s.noun(), s.bits, Clip(written))
	case err != nil || !valid:
		c.fail(n, "type", "must be %s in decimal digits, not %s", s.noun(), Clip(written))
	}
}

// integral returns the digits of an integer that is written with an exponent or with a fraction of zeros,
// such as 7e4. Other numbers are returned unchanged.
func integral(text string) string {
	digits, power, _ := strings.Cut(decimal(text), "e")
	zeros, err := strconv.Atoi(cmp.Or(power, "0"))
	if err != nil || zeros < 0 {
		return text
	}
	return digits + strings.Repeat("0", min(zeros, 20)) // 20 zeros exceed the range of every integer
}

func (c *checker) text(n *Node, s *shape) {
	switch s.kind {
	case anyValue, stringValue:
	case dateTime:
		// RFC 3339 has no decimal comma, which Go would accept.
		if strings.Contains(n.Text, ",") || new(time.Time).UnmarshalText([]byte(n.Text)) != nil {
			c.fail(n, "date_time", "must be %s, not %q", s.noun(), Clip(n.Text))
		}
	default:
		c.fail(n, "type", "must be %s, not a string", s.noun())
	}
}
