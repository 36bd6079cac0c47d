package input

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"comet/internal/errs"
	"comet/models"
)

// Validate checks the validate tags of v, a struct or a pointer to one, and returns every violation
// with the code errs.InvalidRequest and a JSON pointer made of the json tags. It is safe for
// concurrent use.
func Validate(v any) errs.Violations {
	var c checks
	c.members(reflect.Indirect(reflect.ValueOf(v)))
	return c.all
}

// member is a models.Optional.
type member interface{ IsNull() bool }

// Violated returns errs.InvalidRequest with one violation: of a rule by the value at a JSON pointer.
func Violated(pointer, rule, format string, args ...any) error {
	var v errs.Violations
	v.Add(errs.InvalidRequest, pointer, rule, format, args...)
	return v.Err()
}

// ValidatePatch is Validate for a partial update. It also rejects null for members whose tag does
// not declare them as x-nullable.
func ValidatePatch(v any) errs.Violations {
	all := Validate(v)
	value := reflect.ValueOf(v)
	for i := range value.NumField() {
		tag := value.Type().Field(i).Tag
		m, ok := value.Field(i).Interface().(member)
		if ok && m.IsNull() && tag.Get("extensions") != "x-nullable" {
			all.Add(errs.InvalidRequest, "/"+tag.Get("json"), "not_null", "%s must not be null", tag.Get("json"))
		}
	}
	return all
}

// stringRules returns the checks of strings by their tags.
var stringRules = sync.OnceValue(func() map[string]func(string) bool { //nolint:gochecknoglobals // a constant table
	agentID := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	capability := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/-]*$`)
	word := regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	return map[string]func(string) bool{
		"agentid": func(s string) bool { return len(s) <= MaxID && agentID.MatchString(s) },
		"capability": func(s string) bool {
			// The prefix alone is no capability (CHE·NU §6.2).
			return len(s) <= MaxCapability && capability.MatchString(models.CapabilityKey(s))
		},
		"word": func(s string) bool { return len(s) <= maxTypeWord && word.MatchString(s) },
		"notblank": func(s string) bool {
			// Format characters, such as the zero width space, are not visible.
			return strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) })
		},
		"printable": func(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) },
		"text": func(s string) bool { // of several lines
			return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r' })
		},
		"scope": func(s string) bool { return slices.Contains(models.Scopes(), models.Scope(s)) },
	}
})

// ValidCapability reports whether name is a valid name of a capability (CHE·NU §6).
func ValidCapability(name string) bool { return stringRules()["capability"](name) }

// Limits of the length of words, in characters.
const (
	MaxID         = 64
	MaxCapability = 128
	maxTypeWord   = 64 // of an agent type
)
