package input

import (
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/go-playground/validator/v10"

	"comet/internal/errs"
	"comet/models"
)

// Validate checks the validate tags of v, a struct or a pointer to one, and returns every violation
// with the code errs.InvalidRequest and a JSON pointer made of the json tags. It is safe for
// concurrent use.
func Validate(v any) errs.Violations {
	return violations(reflect.Indirect(reflect.ValueOf(v)).Type().Name(), instance().Struct(v))
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

// instance is the shared validator, which caches the tags of each type.
var instance = sync.OnceValue(newValidator) //nolint:gochecknoglobals // built once, never changed

// embeddedName represents, in the validator's path, an embedded struct, whose members belong to the
// struct around it in JSON.
const embeddedName = "(embedded)"

func newValidator() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
			return ""
		case name == "" && f.Anonymous:
			return embeddedName
		}
		return name
	})
	for tag, holds := range stringRules() {
		err := v.RegisterValidation(tag, func(fl validator.FieldLevel) bool {
			return fl.Field().Kind() == reflect.String && holds(fl.Field().String())
		})
		if err != nil {
			panic(err) // an invalid tag name
		}
	}
	registerOptionals(v)
	return v
}

// stringRules returns the checks of comet's own tags.
func stringRules() map[string]func(string) bool {
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
}

// registerOptionals applies the tags of a models.Optional to its value. An absent or null member
// is a nil pointer to the rules.
func registerOptionals(v *validator.Validate) {
	registerOptional[string](v)
	registerOptional[[]string](v)
	registerOptional[int](v)
	registerOptional[[]int](v)
	registerOptional[int64](v)
	registerOptional[bool](v)
	registerOptional[models.Level](v)
	registerOptional[[]models.EventType](v)
	registerOptional[models.Ordering](v)
	registerOptional[models.BudgetScope](v)
}

func registerOptional[T any](v *validator.Validate) {
	v.RegisterCustomTypeFunc(func(field reflect.Value) any {
		o := field.Interface().(models.Optional[T])
		if !o.Set || o.Null {
			return (*T)(nil)
		}
		return o.Value
	}, models.Optional[T]{})
}

func violations(typeName string, err error) errs.Violations {
	if err == nil {
		return nil
	}
	failures, ok := errors.AsType[validator.ValidationErrors](err)
	if !ok {
		return errs.Violations{{Code: errs.Internal, Rule: "type", Detail: "the value cannot be checked"}}
	}
	var all errs.Violations
	for _, f := range failures {
		pointer := pointerOf(strings.TrimPrefix(f.Namespace(), typeName+"."))
		if f.Tag() == "unique" && duplicates(&all, pointer, reflect.ValueOf(f.Value())) {
			continue
		}
		all.Add(errs.InvalidRequest, pointer, ruleOf(f.Tag()), "%s", sentence(pointer, f))
	}
	return all
}

// pointerOf turns the validator's path without the name of the Go type, capabilities[2], into a JSON pointer.
func pointerOf(path string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(path, ".") {
		if part == embeddedName {
			continue
		}
		name, rest, indexed := strings.Cut(part, "[")
		if name != "" {
			b.WriteString("/" + Escape(name))
		}
		for indexed {
			var index string
			index, rest, _ = strings.Cut(rest, "]")
			b.WriteString("/" + index)
			rest, indexed = strings.CutPrefix(rest, "[")
		}
	}
	return b.String()
}

// duplicates adds a violation for each entry of a list that repeats an earlier one.
func duplicates(all *errs.Violations, pointer string, list reflect.Value) bool {
	if list.Kind() != reflect.Slice || !list.Type().Elem().Comparable() {
		return false
	}
	first := map[any]int{}
	for i := range list.Len() {
		entry := list.Index(i).Interface()
		if at, ok := first[entry]; ok {
			here := pointer + "/" + strconv.Itoa(i)
			all.Add(errs.InvalidRequest, here, "unique", "%s repeats %s", Field(here), Field(pointer+"/"+strconv.Itoa(at)))
			continue
		}
		first[entry] = i
	}
	return true
}

// ValidCapability reports whether name is a valid name of a capability (CHE·NU §6).
func ValidCapability(name string) bool {
	return Validate(struct {
		Name string `json:"name" validate:"capability"`
	}{name}).Err() == nil
}

// Limits of the length of words, in characters.
const (
	MaxID         = 64
	MaxCapability = 128
	maxTypeWord   = 64 // of an agent type
)
