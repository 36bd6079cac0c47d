package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"comet/internal/input"
	"comet/internal/redact"
)

// setting is one configurable value, a field of Config. Its tags are:
//
//	key      name in the file; a nested struct's key is the prefix, joined with a dot
//	flag     name of the command line flag, if it has one
//	default  value in the form of an environment variable; the zero value if missing
//	check    a name of checks(), a range low..high, or the words a|b
//	secret   all or url: which part is masked
//	help     one sentence without its full stop; “x” is code
//
// The environment variable is made from the key.
type setting struct {
	key, flag, help string
	index           []int // of the field
	def             any   // its type is the setting's type
	// check returns what is wrong with a value, as in “must be …”, or "".
	check func(value any) string
	// mask returns the value to show; nil for a value that is no secret.
	mask func(string) string
}

// settings returns the settings in the order of the struct.
var settings = sync.OnceValue(func() []setting { //nolint:gochecknoglobals // built once, never changed
	return appendSettings(nil, reflect.TypeFor[Config](), "", nil)
})

func appendSettings(all []setting, t reflect.Type, prefix string, index []int) []setting {
	for i := range t.NumField() {
		f, at := t.Field(i), append(slices.Clip(index), i)
		switch key, ok := f.Tag.Lookup("key"); {
		case f.Anonymous:
			all = appendSettings(all, f.Type, prefix, at)
		case ok && f.Type.Kind() == reflect.Struct:
			all = appendSettings(all, f.Type, prefix+key+".", at)
		case ok:
			all = append(all, newSetting(f, prefix+key, at))
		}
	}
	return all
}

// newSetting panics if the tags are invalid.
func newSetting(f reflect.StructField, key string, index []int) setting {
	s := setting{key: key, flag: f.Tag.Get("flag"), help: f.Tag.Get("help"), index: index}
	switch f.Tag.Get("secret") {
	case "url":
		s.mask = redact.URL
	case "all":
		s.mask = func(string) string { return redact.Mask }
	}
	s.def = reflect.Zero(f.Type).Interface()
	if check := f.Tag.Get("check"); check != "" {
		s.check = newCheck(check, s)
	}
	if text := f.Tag.Get("default"); text != "" || f.Type.Kind() == reflect.Slice {
		value, problem := s.parse(text, "default")
		if problem != "" {
			panic("config: " + problem)
		}
		s.def = value
	}
	return s
}

func newCheck(tag string, s setting) func(any) string {
	if low, high, ok := strings.Cut(tag, ".."); ok {
		least, _ := s.parse(low, tag)
		most, _ := s.parse(high, tag)
		return between(least, most, tag)
	}
	if strings.Contains(tag, "|") {
		return oneOf(strings.Split(tag, "|")...)
	}
	check, ok := checks()[tag]
	if !ok {
		panic("config: " + s.key + " has the unknown check " + tag)
	}
	return check
}

// env returns the environment variable of the setting.
func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(s.key, ".", "_"))
}

// set stores a value in the setting's field.
func (s setting) set(c *Config, value any) {
	reflect.ValueOf(c).Elem().FieldByIndex(s.index).Set(reflect.ValueOf(value))
}

func (s setting) get(c Config) any { return reflect.ValueOf(c).FieldByIndex(s.index).Interface() }

// parse parses a value given as text. The problem is a sentence that names the key and the
// value's source.
func (s setting) parse(text, from string) (any, string) {
	var value any
	var err error
	switch s.def.(type) {
	case bool:
		if text != "true" && text != "false" {
			err = strconv.ErrSyntax
		}
		value = text == "true"
	case int:
		value, err = strconv.Atoi(text)
	case int64:
		value, err = strconv.ParseInt(text, 10, 64)
	case time.Duration:
		value, err = time.ParseDuration(text)
	case []string:
		value = list(text)
	default:
		value = text
	}
	if err != nil {
		return nil, s.problem(text, from, "must be "+s.typeName())
	}
	if s.check != nil {
		if wrong := s.check(value); wrong != "" {
			return nil, s.problem(text, from, wrong)
		}
	}
	return value, ""
}

// problem formats a problem without showing secrets.
func (s setting) problem(text, from, wrong string) string {
	if s.mask != nil {
		return fmt.Sprintf("%s (%s) %s.", s.key, from, wrong)
	}
	return fmt.Sprintf("%s (%s) is %q but %s.", s.key, from, text, wrong)
}

// typeName returns the type's name in messages and documentation.
func (s setting) typeName() string {
	switch s.def.(type) {
	case bool:
		return "true or false"
	case int, int64:
		return "a whole number"
	case time.Duration:
		return "a duration such as 30s, 5m or 24h"
	case []string:
		return "a list such as 127.0.0.1, 10.0.0.0/8"
	default:
		return "text"
	}
}

// show returns the value as text, masked if it is a secret.
func (s setting) show(value any) string {
	text := ""
	switch v := value.(type) {
	case time.Duration:
		text = input.Duration(v)
	case []string:
		text = strings.Join(v, ", ")
	default:
		text = fmt.Sprint(v)
	}
	if s.mask != nil && text != "" {
		return s.mask(text)
	}
	return text
}
