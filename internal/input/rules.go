package input

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"comet/internal/errs"
)

// rule is a part of a validate tag. The parts apply in their order, up to the first that is broken:
//
//	omitnil    ends the check of a missing or null value
//	omitempty  ends it also for a zero value that no pointer points to
//	required   rejects the values for which omitempty ends the check
//	min, max   limit a number, the characters of a string, or the entries of a list or map
//	oneof      lists the words that a string may be
//	unique     rejects equal entries of a list
//	dive       applies the later parts to every entry, and those between keys and endkeys to the keys of a map
//
// The other parts are those of stringRules. The members of a struct are always checked.
type rule struct {
	tag, param string
	holds      func(reflect.Value) bool // of the parts that are conditions for one value
}

func newRule(text string) rule {
	tag, param, _ := strings.Cut(text, "=")
	limit, err := strconv.ParseFloat(param, 64)
	r, condition := rule{tag: tag, param: param}, stringRules()[tag]
	switch {
	case condition != nil:
		r.holds = func(v reflect.Value) bool { return v.Kind() == reflect.String && condition(v.String()) }
	case tag == "min" && err == nil:
		r.holds = func(v reflect.Value) bool { return v.IsValid() && size(v) >= limit }
	case tag == "max" && err == nil:
		r.holds = func(v reflect.Value) bool { return v.IsValid() && size(v) <= limit }
	case tag == "oneof":
		words := strings.Fields(param)
		r.holds = func(v reflect.Value) bool { return slices.Contains(words, v.String()) }
	case !slices.Contains([]string{"omitnil", "omitempty", "required", "unique", "dive", "keys", "endkeys"}, tag):
		panic("input: there is no rule " + text)
	}
	return r
}

// size returns what min and max limit.
func size(v reflect.Value) float64 {
	switch {
	case v.Kind() == reflect.String:
		return float64(utf8.RuneCountInString(v.String()))
	case v.CanInt():
		return float64(v.Int()) // exact up to 2^53, beyond all limits
	case v.CanFloat():
		return v.Float()
	}
	return float64(v.Len())
}

// field is a member of a struct that is checked.
type field struct {
	index    int
	step     string // of the JSON pointer, "" for an embedded struct, whose members are those of the outer struct in JSON
	optional bool   // a models.Optional, whose value is checked
	rules    []rule
}

var fieldCache sync.Map //nolint:gochecknoglobals // the fields of each type, which never change

func fieldsOf(t reflect.Type) []field {
	if known, ok := fieldCache.Load(t); ok {
		return known.([]field)
	}
	var all []field
	for i := range t.NumField() {
		f := t.Field(i)
		tag, checked := f.Tag.Lookup("validate")
		nested := f.Type.Kind() == reflect.Struct || f.Type.Kind() == reflect.Pointer || f.Type.Kind() == reflect.Interface
		if !f.IsExported() && !f.Anonymous || !checked && !nested {
			continue
		}
		next := field{index: i, optional: f.Type.Implements(reflect.TypeFor[member]())}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" || !f.Anonymous {
			next.step = "/" + Escape(cmp.Or(strings.TrimPrefix(name, "-"), f.Name))
		}
		for text := range strings.SplitSeq(tag, ",") {
			if text != "" {
				next.rules = append(next.rules, newRule(text))
			}
		}
		all = append(all, next)
	}
	fieldCache.Store(t, all)
	return all
}

// checks collects violations. path is the JSON pointer of the value that is being checked.
type checks struct {
	all  errs.Violations
	path []byte
}

// members checks the fields of a struct.
func (c *checks) members(s reflect.Value) {
	for _, f := range fieldsOf(s.Type()) {
		v := s.Field(f.index)
		if f.optional {
			if v.FieldByName("Set").Bool() && !v.FieldByName("Null").Bool() {
				v = v.FieldByName("Value")
			} else {
				v = reflect.Value{}
			}
		}
		c.below(f.step, v, f.rules)
	}
}

func (c *checks) below(step string, v reflect.Value, rules []rule) {
	outer := len(c.path)
	c.path = append(c.path, step...)
	c.value(v, rules)
	c.path = c.path[:outer]
}

// value checks a value, which is invalid if it is missing or null.
func (c *checks) value(v reflect.Value, rules []rule) {
	pointed := false
	for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
		v, pointed = v.Elem(), true
	}
	null := !v.IsValid() || (v.Kind() == reflect.Slice || v.Kind() == reflect.Map) && v.IsNil()
	empty := null || !pointed && v.Kind() != reflect.Slice && v.Kind() != reflect.Map && v.IsZero()
	for i, r := range rules {
		switch {
		case r.tag == "omitnil" && null, r.tag == "omitempty" && empty:
			return
		case r.tag == "dive":
			c.entries(v, rules[i+1:])
			return
		case r.tag == "unique":
			if !null && c.duplicates(v) {
				return
			}
		case r.tag == "required" && empty, r.holds != nil && !r.holds(v):
			pointer := string(c.path)
			c.all.Add(errs.InvalidRequest, pointer, ruleOf(r.tag), "%s", sentence(pointer, r, v))
			return
		}
	}
	if v.Kind() == reflect.Struct {
		c.members(v)
	}
}

// entries checks the entries of a list, or those of a map and their keys.
func (c *checks) entries(v reflect.Value, rules []rule) {
	switch v.Kind() {
	case reflect.Slice:
		for i := range v.Len() {
			c.below("/"+strconv.Itoa(i), v.Index(i), rules)
		}
	case reflect.Map:
		var keys []rule
		if end := slices.IndexFunc(rules, func(r rule) bool { return r.tag == "endkeys" }); end > 0 {
			keys, rules = rules[1:end], rules[end+1:]
		}
		for key, entry := range v.Seq2() {
			step := "/" + Escape(key.String())
			c.below(step, key, keys)
			c.below(step, entry, rules)
		}
	}
}

// duplicates adds a violation for each entry of a list that repeats an earlier one.
func (c *checks) duplicates(list reflect.Value) (found bool) {
	first := map[any]int{}
	pointer := string(c.path) + "/"
	for i := range list.Len() {
		entry := list.Index(i).Interface()
		at, repeated := first[entry]
		if !repeated {
			first[entry] = i
			continue
		}
		found = true
		here := pointer + strconv.Itoa(i)
		c.all.Add(errs.InvalidRequest, here, "unique", "%s repeats %s", Field(here), Field(pointer+strconv.Itoa(at)))
	}
	return found
}
