// Package validate judges what one field can be judged by alone. The rules are
// the validate tags of the models; this package runs them and says for each one
// that is broken where, which, and what was expected, in the words of an API
// rather than of Go.
package validate

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
	"comet/internal/words"
	"comet/models"
)

// Struct checks the validate tags of v, a struct or a pointer to one, and
// returns every rule that is broken, with JSON pointers made of the json tags.
// All of them are errs.InvalidRequest. It is safe for concurrent use.
func Struct(v any) errs.Violations { return violations(instance().Struct(v)) }

// instance is the one validator; it caches what it learns of each type.
var instance = sync.OnceValue(newValidator) //nolint:gochecknoglobals // built once, never changed

// embedded stands in the validator's path for a struct whose members are those of
// the struct around it, as they are in JSON.
const embedded = "(embedded)"

func newValidator() *validator.Validate {
	v := validator.New(validator.WithRequiredStructEnabled())
	v.RegisterTagNameFunc(func(f reflect.StructField) string {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
			return ""
		case name == "" && f.Anonymous:
			return embedded
		}
		return name
	})
	for tag, holds := range stringRules() {
		err := v.RegisterValidation(tag, func(fl validator.FieldLevel) bool {
			return fl.Field().Kind() == reflect.String && holds(fl.Field().String())
		})
		if err != nil {
			panic(err) // a tag name that is not one, found by any test
		}
	}
	registerOptionals(v)
	return v
}

// stringRules are the tags beyond the library's own.
func stringRules() map[string]func(string) bool {
	agentID := regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	capability := regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.:/-]*$`)
	word := regexp.MustCompile(`^[a-z0-9][a-z0-9_-]*$`)
	return map[string]func(string) bool{
		"agentid": func(s string) bool { return len(s) <= models.MaxIDLength && agentID.MatchString(s) },
		"capability": func(s string) bool {
			// The prefix names nothing by itself (CHE·NU §6.2).
			return len(s) <= models.MaxCapabilityLength && capability.MatchString(models.CapabilityKey(s))
		},
		"word":      func(s string) bool { return len(s) <= models.MaxTypeLength && word.MatchString(s) },
		"notblank":  func(s string) bool { return strings.ContainsFunc(s, visible) },
		"printable": func(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, unicode.IsControl) },
		"text":      func(s string) bool { return utf8.ValidString(s) && !strings.ContainsFunc(s, controlInText) },
		"scope":     func(s string) bool { return slices.Contains(models.Scopes(), models.Scope(s)) },
	}
}

// visible reports what a person can see: no space, and none of the characters
// that only say how others are shown, such as the zero width space.
func visible(r rune) bool { return !unicode.IsSpace(r) && !unicode.Is(unicode.Cf, r) }

// controlInText reports what text that may span lines must not hold.
func controlInText(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' && r != '\r'
}

// registerOptionals lets the tags of models.AgentPatch speak of the value: a
// member that is absent or null looks like a nil pointer to the rules.
func registerOptionals(v *validator.Validate) {
	registerOptional[string](v)
	registerOptional[[]string](v)
	registerOptional[int](v)
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

func violations(err error) errs.Violations {
	if err == nil {
		return nil
	}
	var failures validator.ValidationErrors
	if !errors.As(err, &failures) {
		return errs.Violations{{Code: errs.Internal, Field: errs.Field{Rule: "type", Detail: "the value cannot be checked"}}}
	}
	var all errs.Violations
	for _, f := range failures {
		pointer := pointerOf(f.Namespace())
		if f.Tag() == "unique" && duplicates(&all, pointer, reflect.ValueOf(f.Value())) {
			continue
		}
		all.Add(errs.InvalidRequest, pointer, ruleOf(f.Tag()), "%s", sentence(pointer, f))
	}
	return all
}

// pointerOf turns the validator's path, AgentDraft.capabilities[2], which begins
// with the name of the Go type, into a JSON pointer.
func pointerOf(namespace string) string {
	var b strings.Builder
	_, path, _ := strings.Cut(namespace, ".")
	for part := range strings.SplitSeq(path, ".") {
		if part == embedded {
			continue
		}
		name, rest, indexed := strings.Cut(part, "[")
		if name != "" {
			b.WriteString("/" + words.Escape(name))
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

// duplicates reports each entry of a list that repeats an earlier one.
func duplicates(all *errs.Violations, pointer string, list reflect.Value) bool {
	if list.Kind() != reflect.Slice || !list.Type().Elem().Comparable() {
		return false
	}
	first := map[any]int{}
	for i := range list.Len() {
		entry := list.Index(i).Interface()
		if at, ok := first[entry]; ok {
			here := pointer + "/" + strconv.Itoa(i)
			all.Add(errs.InvalidRequest, here, "unique", "%s repeats %s", words.Field(here), words.Field(pointer+"/"+strconv.Itoa(at)))
			continue
		}
		first[entry] = i
	}
	return true
}

// Capability reports whether a name can be a capability's (CHE·NU §6).
func Capability(name string) bool {
	return Struct(struct {
		Name string `json:"name" validate:"capability"`
	}{name}).Err() == nil
}
